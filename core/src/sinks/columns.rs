//! Values -> columns in Arrow's layout, row by row.

use std::ops::Range;

use crate::sinks::shared::Droppable;
use crate::Odd;

/// Cost of a value besides its text, as in kdissect/tables/arrow.py.
const VALUE_COST: usize = 8;

/// The type of a column, and its format string in the Arrow C data interface.
#[derive(Clone, Debug)]
pub struct ColumnKind {
    pub format: String,
    /// A list: its element; a struct: its named fields.
    pub inner: Vec<(String, ColumnKind)>,
}

#[derive(Default)]
pub struct Bits {
    pub bytes: Vec<u8>,
    len: usize,
}

impl Bits {
    fn push(&mut self, bit: bool) {
        if self.len % 8 == 0 {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << (self.len % 8);
        }
        self.len += 1;
    }

    fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len.div_ceil(8));
        self.len = len;
        if let Some(last) = self.bytes.last_mut().filter(|_| len % 8 > 0) {
            *last &= (1 << (len % 8)) - 1;
        }
    }

    fn get(&self, place: usize) -> bool {
        let byte = self.bytes.get(place / 8);
        byte.is_some_and(|byte| byte >> (place % 8) & 1 == 1)
    }

    fn zeros(&self) -> usize {
        self.len
            - self
                .bytes
                .iter()
                .map(|byte| byte.count_ones() as usize)
                .sum::<usize>()
    }
}

/// Where variable-sized values begin and end.
pub struct Offsets(pub Vec<i32>);

impl Offsets {
    fn push(&mut self, end: usize) -> Result<(), Odd> {
        self.0.push(i32::try_from(end).map_err(|_| Odd)?);
        Ok(())
    }

    /// Where a value is.
    fn range(&self, row: usize) -> Result<Range<usize>, Odd> {
        match self.0.get(row..row + 2) {
            Some([start, end]) => Ok(*start as usize..*end as usize),
            _ => Err(Odd),
        }
    }

    /// Returns the remaining length of the values.
    fn truncate(&mut self, rows: usize) -> usize {
        self.0.truncate(rows + 1);
        self.0.last().map_or(0, |end| *end as usize)
    }
}

/// The bytes of all values of a column.
pub enum Text {
    Own(Vec<u8>),
    /// Those of its only value that is not empty: it can have tens of MB, so it is not copied.
    Given(Box<dyn AsRef<[u8]> + Send + Sync>),
}

impl Text {
    fn own(&mut self) -> &mut Vec<u8> {
        if let Text::Given(bytes) = self {
            *self = Text::Own((**bytes).as_ref().to_vec());
        }
        match self {
            Text::Own(bytes) => bytes,
            Text::Given(_) => unreachable!(),
        }
    }
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        match self {
            Text::Own(bytes) => bytes,
            Text::Given(bytes) => (**bytes).as_ref(),
        }
    }
}

pub enum Values {
    Bits(Bits),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    Bytes(Offsets, Text),
    List(Offsets, Box<Column>),
    Struct(Vec<(String, Column)>),
}

/// A column. Methods that append a value return its cost; if it is odd, `truncate` repairs the column.
pub struct Column {
    pub format: String,
    pub rows: usize,
    pub present: Bits,
    pub values: Values,
}

impl Column {
    /// None if there is no such format.
    pub fn new(kind: &ColumnKind) -> Option<Self> {
        let offsets = || Offsets(vec![0]);
        let values = match kind.format.split(':').next()? {
            "b" => Values::Bits(Bits::default()),
            "s" => Values::I16(Vec::new()),
            "i" | "tdD" => Values::I32(Vec::new()),
            "l" | "tsu" => Values::I64(Vec::new()),
            "u" | "z" => Values::Bytes(offsets(), Text::Own(Vec::new())),
            "+l" => Values::List(offsets(), Box::new(Column::new(&kind.inner.first()?.1)?)),
            "+s" => Values::Struct(
                kind.inner
                    .iter()
                    .map(|(name, kind)| Some((name.clone(), Column::new(kind)?)))
                    .collect::<Option<_>>()?,
            ),
            _ => return None,
        };
        Some(Column {
            format: kind.format.clone(),
            rows: 0,
            present: Bits::default(),
            values,
        })
    }

    /// An empty column, to replace one that was handed over.
    pub fn empty() -> Self {
        Column {
            format: String::new(),
            rows: 0,
            present: Bits::default(),
            values: Values::Struct(Vec::new()),
        }
    }

    pub fn nulls(&self) -> usize {
        self.present.zeros()
    }

    fn pushed(&mut self, is_present: bool) {
        self.present.push(is_present);
        self.rows += 1;
    }

    pub fn null(&mut self) -> Result<usize, Odd> {
        match &mut self.values {
            Values::Bits(bits) => bits.push(false),
            Values::I16(numbers) => numbers.push(0),
            Values::I32(numbers) => numbers.push(0),
            Values::I64(numbers) => numbers.push(0),
            Values::Bytes(offsets, bytes) => offsets.push(bytes.as_ref().len())?,
            Values::List(offsets, element) => offsets.push(element.rows)?,
            Values::Struct(fields) => {
                for (_, field) in fields {
                    field.null()?;
                }
            }
        }
        self.pushed(false);
        Ok(VALUE_COST)
    }

    /// An empty list, or null in a column of anything else.
    pub fn empty_or_null(&mut self) -> Result<usize, Odd> {
        match &self.values {
            Values::List(..) => self.list(|_| Ok(0)),
            _ => self.null(),
        }
    }

    pub fn bool(&mut self, value: bool) -> Result<usize, Odd> {
        let Values::Bits(bits) = &mut self.values else {
            return Err(Odd);
        };
        bits.push(value);
        self.pushed(true);
        Ok(VALUE_COST)
    }

    pub fn int(&mut self, number: i64) -> Result<usize, Odd> {
        match &mut self.values {
            Values::I16(numbers) => numbers.push(number.try_into().map_err(|_| Odd)?),
            Values::I32(numbers) => numbers.push(number.try_into().map_err(|_| Odd)?),
            Values::I64(numbers) => numbers.push(number),
            _ => return Err(Odd),
        }
        self.pushed(true);
        Ok(VALUE_COST)
    }

    pub fn text(&mut self, text: &str) -> Result<usize, Odd> {
        self.bytes(text.as_bytes())?;
        Ok(VALUE_COST
            + if text.is_ascii() {
                text.len()
            } else {
                4 * text.chars().count() // as Python holds it at most
            })
    }

    /// A column of text takes UTF-8.
    pub fn bytes(&mut self, value: &[u8]) -> Result<usize, Odd> {
        let Values::Bytes(offsets, bytes) = &mut self.values else {
            return Err(Odd);
        };
        let bytes = bytes.own();
        bytes.extend_from_slice(value);
        offsets.push(bytes.len())?;
        self.pushed(true);
        Ok(VALUE_COST + value.len())
    }

    /// As `bytes`, without a copy if it is the first value.
    pub fn give(&mut self, value: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<usize, Odd> {
        match &mut self.values {
            Values::Bytes(offsets, bytes) if bytes.as_ref().is_empty() => {
                let len = value.as_ref().len();
                offsets.push(len)?;
                *bytes = Text::Given(Box::new(value));
                self.pushed(true);
                Ok(VALUE_COST + len)
            }
            _ => self.bytes(value.as_ref()),
        }
    }

    /// `add` appends the elements and returns their cost.
    pub fn list<E: From<Odd>>(
        &mut self,
        add: impl FnOnce(&mut Column) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let Values::List(offsets, element) = &mut self.values else {
            return Err(Odd.into());
        };
        let cost = add(element)?;
        offsets.push(element.rows)?;
        self.pushed(true);
        Ok(VALUE_COST + cost)
    }

    /// `add` appends a value to each field and returns their cost.
    pub fn structure<E: From<Odd>>(
        &mut self,
        add: impl FnOnce(&mut [(String, Column)]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let Values::Struct(fields) = &mut self.values else {
            return Err(Odd.into());
        };
        let cost = add(fields)?;
        self.pushed(true);
        Ok(VALUE_COST + cost)
    }

    /// Appends a value of another column of this kind.
    fn copy(&mut self, from: &Column, row: usize) -> Result<(), Odd> {
        if !from.present.get(row) {
            return self.null().map(drop);
        }
        match (&mut self.values, &from.values) {
            (Values::Bits(_), Values::Bits(bits)) => return self.bool(bits.get(row)).map(drop),
            (Values::I16(to), Values::I16(from)) => to.push(*from.get(row).ok_or(Odd)?),
            (Values::I32(to), Values::I32(from)) => to.push(*from.get(row).ok_or(Odd)?),
            (Values::I64(to), Values::I64(from)) => to.push(*from.get(row).ok_or(Odd)?),
            (Values::Bytes(..), Values::Bytes(offsets, bytes)) => {
                let value = bytes.as_ref().get(offsets.range(row)?).ok_or(Odd)?;
                return self.bytes(value).map(drop);
            }
            (Values::List(to, element), Values::List(offsets, elements)) => {
                for each in offsets.range(row)? {
                    element.copy(elements, each)?;
                }
                to.push(element.rows)?;
            }
            (Values::Struct(to), Values::Struct(from)) => {
                for ((_, to), (_, from)) in to.iter_mut().zip(from) {
                    to.copy(from, row)?;
                }
            }
            _ => return Err(Odd),
        }
        self.pushed(true);
        Ok(())
    }

    /// Drops all but the first rows, including an incomplete one.
    pub fn truncate(&mut self, rows: usize) {
        self.rows = self.rows.min(rows);
        self.present.truncate(rows);
        match &mut self.values {
            Values::Bits(bits) => bits.truncate(rows),
            Values::I16(numbers) => numbers.truncate(rows),
            Values::I32(numbers) => numbers.truncate(rows),
            Values::I64(numbers) => numbers.truncate(rows),
            Values::Bytes(offsets, bytes) => bytes.own().truncate(offsets.truncate(rows)),
            Values::List(offsets, element) => element.truncate(offsets.truncate(rows)),
            Values::Struct(fields) => fields.iter_mut().for_each(|(_, field)| field.truncate(rows)),
        }
    }
}

/// Values of rows that are known later than the rows: the name of a column, and its value.
pub type Later<'a> = (&'a str, LaterValue<'a>);

pub enum LaterValue<'a> {
    Number(i64),
    Text(&'a str),
}

/// Rows that wait to be added to others.
pub struct WaitingColumns {
    columns: Columns,
    costs: Vec<usize>,
    /// How many were moved.
    moved: usize,
}

impl WaitingColumns {
    /// Rows that were moved are dropped if they are as many as the others, and this many.
    const DROPPED: usize = 1000;

    /// Of the same kind.
    pub fn of(columns: &Columns) -> Option<Self> {
        Some(WaitingColumns {
            columns: Columns::new(columns.kind.clone())?,
            costs: Vec::new(),
            moved: 0,
        })
    }

    /// See [`Columns`].
    pub fn row(&mut self, add: impl FnOnce(&mut [Column]) -> Result<usize, Odd>) -> Result<(), Odd> {
        let held = self.columns.held;
        self.columns.row(add)?;
        self.costs.push(self.columns.held - held);
        Ok(())
    }

    /// Adds the first rows to others, with values that are the same in all of them: at most so many, and none after
    /// one with which the others have this number of rows or bytes. Returns how many.
    pub fn move_to(
        &mut self,
        to: &mut Columns,
        rows: usize,
        (max_rows, max_bytes): (usize, usize),
        later: &[Later<'_>],
    ) -> Result<usize, Odd> {
        let mut moved = 0;
        while moved < rows && to.rows < max_rows && to.held < max_bytes {
            let (row, names) = (self.moved, &to.kind.inner);
            let cost = *self.costs.get(row).ok_or(Odd)?;
            let mut more = 0;
            let columns = &mut to.columns;
            for ((column, (name, _)), from) in columns.iter_mut().zip(names).zip(&self.columns.columns) {
                match later.iter().find(|(each, _)| each == name) {
                    Some((_, LaterValue::Number(number))) => drop(column.int(*number)?),
                    Some((_, LaterValue::Text(text))) => more += column.text(text)? - VALUE_COST,
                    None => column.copy(from, row)?,
                }
            }
            to.rows += 1;
            to.held += cost + more;
            self.moved += 1;
            moved += 1;
        }
        if self.moved >= Self::DROPPED && 2 * self.moved >= self.columns.rows {
            self.drop_moved()?;
        }
        Ok(moved)
    }

    fn drop_moved(&mut self) -> Result<(), Odd> {
        let mut rest = Columns::new(self.columns.kind.clone()).ok_or(Odd)?;
        for row in self.moved..self.columns.rows {
            for (column, from) in rest.columns.iter_mut().zip(&self.columns.columns) {
                column.copy(from, row)?;
            }
        }
        self.costs.drain(..self.moved);
        rest.rows = self.costs.len();
        rest.held = self.costs.iter().sum();
        self.columns = rest;
        self.moved = 0;
        Ok(())
    }
}

impl Droppable for WaitingColumns {
    fn size(&self) -> (usize, usize) {
        self.columns.size()
    }

    fn truncate(&mut self, rows: usize, held: usize) {
        self.columns.truncate(rows, held);
        self.costs.truncate(rows);
    }
}

/// The rows of the next batch.
pub struct Columns {
    kind: ColumnKind,
    pub columns: Vec<Column>,
    pub rows: usize,
    /// Their approximate size in bytes.
    pub held: usize,
}

impl Columns {
    /// None if there is no such format. `kind` is a struct.
    pub fn new(kind: ColumnKind) -> Option<Self> {
        Some(Columns {
            columns: kind
                .inner
                .iter()
                .map(|(_, kind)| Column::new(kind))
                .collect::<Option<_>>()?,
            kind,
            rows: 0,
            held: 0,
        })
    }

    /// `add` appends one value to each column and returns their cost. If it is odd, it has no effect.
    pub fn row<E: From<Odd>>(
        &mut self,
        add: impl FnOnce(&mut [Column]) -> Result<usize, E>,
    ) -> Result<(), E> {
        match add(&mut self.columns) {
            Ok(cost) => {
                self.rows += 1;
                self.held += cost;
                Ok(())
            }
            Err(odd) => {
                self.columns
                    .iter_mut()
                    .for_each(|column| column.truncate(self.rows));
                Err(odd)
            }
        }
    }

    /// All rows, as a struct, and starts the next batch.
    pub fn take(&mut self) -> Option<(ColumnKind, Column)> {
        let empty = Columns::new(self.kind.clone())?;
        let Columns {
            kind, columns, rows, ..
        } = std::mem::replace(self, empty);
        let mut present = Bits::default();
        (0..rows).for_each(|_| present.push(true));
        let names = kind.inner.iter().map(|(name, _)| name.clone());
        let all = Column {
            format: kind.format.clone(),
            rows,
            present,
            values: Values::Struct(names.zip(columns).collect()),
        };
        Some((kind, all))
    }
}

impl Droppable for Columns {
    fn size(&self) -> (usize, usize) {
        (self.rows, self.held)
    }

    fn truncate(&mut self, rows: usize, held: usize) {
        self.columns.iter_mut().for_each(|column| column.truncate(rows));
        (self.rows, self.held) = (rows, held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(format: &str, inner: &[(&str, ColumnKind)]) -> ColumnKind {
        ColumnKind {
            format: format.to_owned(),
            inner: inner
                .iter()
                .map(|(name, kind)| (name.to_string(), kind.clone()))
                .collect(),
        }
    }

    #[test]
    fn an_odd_row_has_no_effect() {
        let texts = kind("+l", &[("element", kind("u", &[]))]);
        let mut columns = Columns::new(kind(
            "+s",
            &[("a", kind("s", &[])), ("b", texts), ("c", kind("b", &[]))],
        ))
        .unwrap();
        for number in [1, 70_000, 3] {
            let added = columns.row::<Odd>(|columns| {
                let mut cost =
                    columns[1].list(|element| Ok::<_, Odd>(element.text("äx")? + element.null()?))?;
                cost += columns[2].bool(true)?;
                Ok(cost + columns[0].int(number)?)
            });
            assert_eq!(added.is_ok(), number < 70_000);
        }
        let text = 8 + 4 * 2; // two characters of four bytes
        assert_eq!((columns.rows, columns.held), (2, 2 * (8 + text + 8 + 8 + 8)));
        let (_, all) = columns.take().unwrap();
        assert_eq!((columns.rows, columns.held), (0, 0));
        let Values::Struct(fields) = all.values else {
            panic!()
        };
        for (_, column) in &fields {
            assert_eq!((column.rows, column.nulls()), (2, 0));
        }
        let Values::List(offsets, element) = &fields[1].1.values else {
            panic!()
        };
        assert_eq!(
            (&offsets.0, element.rows, element.nulls()),
            (&vec![0, 2, 4], 4, 2)
        );
        let Values::Bytes(offsets, bytes) = &element.values else {
            panic!()
        };
        assert_eq!(
            (&offsets.0[..], bytes.as_ref()),
            (&[0, 3, 3, 6, 6][..], "äxäx".as_bytes())
        );
        let Values::Bits(bits) = &fields[2].1.values else {
            panic!()
        };
        assert_eq!((&bits.bytes[..], bits.len), (&[3][..], 2));
    }

    #[test]
    fn rows_that_wait_are_moved_with_what_is_known_later() {
        let pair = kind("+s", &[("x", kind("i", &[])), ("y", kind("u", &[]))]);
        let all = kind(
            "+s",
            &[
                ("bits", kind("b", &[])),
                ("list", kind("+l", &[("element", pair)])),
                ("later", kind("l", &[])),
                ("text", kind("u", &[])),
            ],
        );
        let mut waiting = WaitingColumns::of(&Columns::new(all.clone()).unwrap()).unwrap();
        let mut expected = Columns::new(all.clone()).unwrap();
        let mut moved = Columns::new(all).unwrap();
        let number = 3 * WaitingColumns::DROPPED as i64;
        let fill = |row: i64, later: Option<i64>, columns: &mut [Column]| {
            let mut cost = columns[0].bool(row % 3 == 0)?;
            cost += match row % 5 {
                0 => columns[1].null()?,
                several => columns[1].list(|element| {
                    (0..several).try_fold(0, |sum, each| {
                        let more = element.structure(|fields| {
                            Ok::<_, Odd>(
                                fields[0].1.int(each)? + fields[1].1.text(&"ä".repeat(each as usize))?,
                            )
                        })?;
                        Ok::<_, Odd>(sum + more)
                    })
                })?,
            };
            cost += match later {
                Some(later) => columns[2].int(later)?,
                None => columns[2].null()?,
            };
            Ok::<_, Odd>(cost + columns[3].text(&row.to_string())?)
        };
        for row in 0..number {
            waiting.row(|columns| fill(row, None, columns)).unwrap();
            let later = (row >= 10).then_some(7);
            expected.row(|columns| fill(row, later, columns)).unwrap();
        }
        let (rows, held) = waiting.size();
        waiting.row(|columns| fill(0, None, columns)).unwrap();
        waiting.truncate(rows, held);
        let unlimited = (usize::MAX, usize::MAX);
        assert_eq!(waiting.move_to(&mut moved, 10, unlimited, &[]), Ok(10));
        let later = [("later", LaterValue::Number(7))];
        let limited = (1500, usize::MAX);
        assert_eq!(
            waiting.move_to(&mut moved, number as usize, limited, &later),
            Ok(1490)
        );
        assert_eq!(waiting.size().0, 1500, "those that were moved are dropped");
        let full = moved.held;
        assert_eq!(waiting.move_to(&mut moved, 1, (usize::MAX, full), &later), Ok(0));
        assert_eq!(waiting.move_to(&mut moved, 1500, unlimited, &later), Ok(1500));
        assert_eq!(waiting.move_to(&mut moved, 1, unlimited, &later), Err(Odd));
        assert_eq!(moved.size(), expected.size());
        for (column, expected) in moved.columns.iter().zip(&expected.columns) {
            assert!(is_same(column, expected));
        }
    }

    fn is_same(one: &Column, other: &Column) -> bool {
        let is_inside_same = match (&one.values, &other.values) {
            (Values::Bits(one), Values::Bits(other)) => one.bytes == other.bytes,
            (Values::I32(one), Values::I32(other)) => one == other,
            (Values::I64(one), Values::I64(other)) => one == other,
            (Values::Bytes(ends, one), Values::Bytes(others, other)) => {
                ends.0 == others.0 && one.as_ref() == other.as_ref()
            }
            (Values::List(ends, one), Values::List(others, other)) => {
                ends.0 == others.0 && is_same(one, other)
            }
            (Values::Struct(one), Values::Struct(other)) => one
                .iter()
                .zip(other)
                .all(|((_, one), (_, other))| is_same(one, other)),
            _ => false,
        };
        is_inside_same && one.rows == other.rows && one.present.bytes == other.present.bytes
    }

    #[test]
    fn a_given_value_is_copied_when_others_follow() {
        let mut column = Column::new(&kind("u", &[])).unwrap();
        column.null().unwrap();
        assert_eq!(column.give(b"ab".to_vec()).unwrap(), 8 + 2);
        assert!(matches!(&column.values, Values::Bytes(_, Text::Given(_))));
        column.give(b"c".to_vec()).unwrap();
        column.text("d").unwrap();
        column.truncate(3);
        let Values::Bytes(offsets, bytes) = &column.values else {
            panic!()
        };
        assert_eq!((&offsets.0[..], bytes.as_ref()), (&[0, 0, 2, 3][..], &b"abc"[..]));
    }
}
