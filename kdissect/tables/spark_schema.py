"""Columns -> Spark schemas: StructType JSON, DDL, CREATE TABLE, Python. Stateless.

Every column can be null. Names are quoted, because some are SQL keywords (``timestamp``, ``where``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.tables.columns import Array, Scalar, Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from kdissect.tables.columns import Column, Type
    from kdissect.tables.form import Table


def in_directories(columns: Sequence[Column], partition_by: Collection[str]) -> tuple[Column, ...]:
    """The columns as readers see them: partition columns last."""
    in_files = [column for column in columns if column.name not in partition_by]
    return (*in_files, *(column for column in columns if column.name in partition_by))


def struct_type(columns: Sequence[Column]) -> dict[str, Any]:
    """A schema for ``StructType.fromJson``, in which each column has a comment."""
    schema = _struct([(column.name, column.type) for column in columns])
    for field, column in zip(schema["fields"], columns, strict=True):
        field["metadata"] = {"comment": column.description}
    return schema


def ddl(columns: Sequence[Column]) -> str:
    """A schema for ``spark.read.schema`` and ``StructType.fromDDL``."""
    return ", ".join(f"{_quoted(column.name)} {_ddl(column.type)}" for column in columns)


def python(columns: Sequence[Column]) -> str:
    """Source of a Python module that defines ``schema``."""
    fields = "".join(f"        {_commented(column)},\n" for column in columns)
    return f"from pyspark.sql import types as t\n\nschema = t.StructType(\n    [\n{fields}    ]\n)"


def create_table(
    table: Table, columns: Sequence[Column], directory: Path, partition_by: Sequence[str], using: str
) -> str:
    """The Spark SQL statement that creates a table over a directory, and for partitions a second one that
    discovers them.
    """
    lines = ",\n".join(
        f"  {_quoted(column.name)} {_ddl(column.type)} COMMENT {_text(column.description)}"
        for column in columns
    )
    partitions = f"PARTITIONED BY ({', '.join(map(_quoted, partition_by))})\n" if partition_by else ""
    name = _quoted(table.name)
    statement = (
        f"CREATE TABLE IF NOT EXISTS {name} (\n{lines}\n)\nUSING {using}\n{partitions}"
        f"LOCATION {_text(directory.as_uri())}\nCOMMENT {_text(table.description)};\n"
    )
    return f"{statement}MSCK REPAIR TABLE {name};\n" if partition_by else statement


def _struct(fields: Sequence[tuple[str, Type]]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {"name": name, "type": _json(kind), "nullable": True, "metadata": {}} for name, kind in fields
        ],
    }


def _json(kind: Type) -> Any:
    if isinstance(kind, Scalar):
        return kind.spark
    if isinstance(kind, Struct):
        return _struct(kind.fields)
    return {"type": "array", "elementType": _json(kind.element), "containsNull": True}


def _ddl(kind: Type) -> str:
    if isinstance(kind, Scalar):
        return kind.sql
    if isinstance(kind, Array):
        return f"ARRAY<{_ddl(kind.element)}>"
    return f"STRUCT<{', '.join(f'{_quoted(name)}: {_ddl(inner)}' for name, inner in kind.fields)}>"


def _commented(column: Column) -> str:
    comment = f'{{"comment": {column.description!r}}}'
    return f't.StructField("{column.name}", {_python(column.type)}, metadata={comment})'


def _field(name: str, kind: Type) -> str:
    return f't.StructField("{name}", {_python(kind)})'


def _python(kind: Type) -> str:
    if isinstance(kind, Scalar):
        return f"t.{kind.spark.capitalize()}Type()"
    if isinstance(kind, Array):
        return f"t.ArrayType({_python(kind.element)})"
    return f"t.StructType([{', '.join(_field(*field) for field in kind.fields)}])"


def _quoted(name: str) -> str:
    return f"`{name}`"


def _text(text: str) -> str:
    """A string literal, in which Spark reads backslash escapes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
