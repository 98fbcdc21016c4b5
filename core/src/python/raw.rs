//! All unsafe code: a buffer of Python -> its bytes; columns -> the structs of the Arrow C data interface
//! (arrow.apache.org/docs/format/CDataInterface.html), in capsules. The reader releases what it took over; the capsule
//! releases the rest.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_void, CString};
use std::ptr::{null, null_mut};

use pyo3::buffer::PyBuffer;

use crate::sinks::columns::{Column, ColumnKind, Values};

#[repr(C)]
pub struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

#[repr(C)]
pub struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

// SAFETY: they own everything they point to, and none of it is tied to a thread.
unsafe impl Send for ArrowSchema {}
// SAFETY: as above.
unsafe impl Send for ArrowArray {}

/// What the pointers of an `ArrowSchema` point to.
struct SchemaParts {
    format: CString,
    name: CString,
    children: Children<ArrowSchema>,
}

/// What the pointers of an `ArrowArray` point to.
struct ArrayParts {
    _column: Values,
    _present: Vec<u8>,
    buffers: Vec<*const c_void>,
    children: Children<ArrowArray>,
}

/// Structs whose addresses other structs hold.
struct Children<T>(Vec<*mut T>);

impl<T> Children<T> {
    fn new(children: impl Iterator<Item = T>) -> Self {
        Children(children.map(|child| Box::into_raw(Box::new(child))).collect())
    }
}

impl<T> Drop for Children<T> {
    fn drop(&mut self) {
        for child in self.0.drain(..) {
            // SAFETY: `new` made it from a box, and nothing else frees it: a reader that moves a child out of its
            // parent, as the interface allows, copies the struct and clears `release` in this one.
            drop(unsafe { Box::from_raw(child) });
        }
    }
}

impl ArrowSchema {
    /// Format strings and names come from Python's literals and have no zero byte; one would end it early.
    pub fn new(name: &str, kind: ColumnKind) -> Self {
        let text = |text: &str| CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default();
        let inner = kind.inner.into_iter();
        let mut parts = Box::new(SchemaParts {
            format: text(&kind.format),
            name: text(name),
            children: Children::new(inner.map(|(name, kind)| ArrowSchema::new(&name, kind))),
        });
        ArrowSchema {
            format: parts.format.as_ptr(),
            name: parts.name.as_ptr(),
            metadata: null(),
            flags: 2, // nullable
            n_children: parts.children.0.len() as i64,
            children: parts.children.0.as_mut_ptr(),
            dictionary: null_mut(),
            release: Some(release_schema),
            private_data: Box::into_raw(parts).cast(),
        }
    }
}

impl ArrowArray {
    pub fn new(column: Column) -> Self {
        let (length, null_count) = (column.rows as i64, column.nulls() as i64);
        let (present, mut values) = (column.present.bytes, column.values);
        // Moving the vectors into `ArrayParts` leaves their elements where they are.
        let mut buffers = vec![match null_count {
            0 => null(),
            _ => present.as_ptr().cast(),
        }];
        let mut inner = Vec::new();
        match &mut values {
            Values::Bits(bits) => buffers.push(bits.bytes.as_ptr().cast()),
            Values::I16(numbers) => buffers.push(numbers.as_ptr().cast()),
            Values::I32(numbers) => buffers.push(numbers.as_ptr().cast()),
            Values::I64(numbers) => buffers.push(numbers.as_ptr().cast()),
            Values::Bytes(offsets, bytes) => {
                buffers.push(offsets.0.as_ptr().cast());
                buffers.push(bytes.as_ref().as_ptr().cast());
            }
            Values::List(offsets, element) => {
                buffers.push(offsets.0.as_ptr().cast());
                inner.push(std::mem::replace(&mut **element, Column::empty()));
            }
            Values::Struct(fields) => inner.extend(fields.drain(..).map(|(_, field)| field)),
        }
        let mut parts = Box::new(ArrayParts {
            _column: values,
            _present: present,
            buffers,
            children: Children::new(inner.into_iter().map(ArrowArray::new)),
        });
        ArrowArray {
            length,
            null_count,
            offset: 0,
            n_buffers: parts.buffers.len() as i64,
            n_children: parts.children.0.len() as i64,
            buffers: parts.buffers.as_mut_ptr(),
            children: parts.children.0.as_mut_ptr(),
            dictionary: null_mut(),
            release: Some(release_array),
            private_data: Box::into_raw(parts).cast(),
        }
    }
}

impl Drop for ArrowSchema {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: it has not been released yet, or this would be `None`.
            unsafe { release(self) };
        }
    }
}

impl Drop for ArrowArray {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: as above.
            unsafe { release(self) };
        }
    }
}

/// # Safety
/// `schema` points to a struct made by `ArrowSchema::new`, perhaps moved since, and not released yet.
unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: the caller's promise; `new` made `private_data` from a box of this type, and only this frees it.
    unsafe {
        (*schema).release = None;
        drop(Box::from_raw((*schema).private_data.cast::<SchemaParts>()));
    }
}

/// # Safety
/// As `release_schema`, of an `ArrowArray`.
unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: as above.
    unsafe {
        (*array).release = None;
        drop(Box::from_raw((*array).private_data.cast::<ArrayParts>()));
    }
}

/// A contiguous buffer whose bytes do not change: in a `MessageRing`, nobody writes there before this is dropped.
pub struct Bytes(pub PyBuffer<u8>);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        let bytes = self.0.as_slice_ptr();
        // SAFETY: the pointer is valid as long as the buffer, where nobody writes (kdissect/runs/worker_pool.py).
        bytes.map_or(&[], |bytes| unsafe { bytes.as_ref() })
    }
}
