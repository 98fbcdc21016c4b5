"""Writes schemas.json: what confluent-kafka's serializers write, and a registry's answers about the schemas.

    pip install 'confluent-kafka[avro,protobuf,json]' grpcio-tools
    python tests/vectors/schemas.py

Needed only to add a vector: the packages of the serializers are not needed by any test.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from base64 import b64encode
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

OUT = Path(__file__).with_suffix(".json")

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["OPEN", "PAID"]}},
    ],
}
ORDER_VALUE = {
    "id": 40,
    "item": "plum",
    "note": None,
    "price": Decimal("12.50"),
    "at": datetime(2026, 11, 21, 9, 25, tzinfo=UTC),
    "tags": ["a", "b"],
    "status": "PAID",
}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "value", "type": "int"},
        {"name": "children", "type": {"type": "array", "items": "Tree"}},
    ],
}
TREE_VALUE = {"value": 1, "children": [{"value": 2, "children": []}]}
JSON_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "item": {"type": "string"}},
}
PROTO = """\
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "common.proto";
message Order {
  int64 id = 1;
  string item_name = 2;
  Money price = 3;
  google.protobuf.Timestamp at = 4;
  repeated string tags = 5;
  message Line { int32 count = 1; }
  enum Status { OPEN = 0; PAID = 1; }
  Status status = 6;
}
message Payment { bytes token = 1; bool done = 2; }
"""
COMMON = 'syntax = "proto3";\npackage shop;\nmessage Money { string amount = 1; }\n'


def main() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    vectors: list[dict[str, Any]] = []

    def add(name: str, serializer: Any, value: Any, expected: Any) -> None:
        headers: list[tuple[str, bytes]] = []
        context = SerializationContext(name, MessageField.VALUE, headers)
        data = serializer(value, context)
        vectors.append(
            {
                "name": name,
                "data": b64encode(data).decode(),
                "headers": [[key, b64encode(header).decode()] for key, header in headers],
                "value": expected,
            }
        )

    expected = {**ORDER_VALUE, "price": "12.50", "at": "2026-11-21T09:25:00+00:00"}
    add("avro-record", AvroSerializer(client, json.dumps(ORDER)), ORDER_VALUE, expected)
    add("avro-recursive", AvroSerializer(client, json.dumps(TREE)), TREE_VALUE, TREE_VALUE)
    add("avro-string", AvroSerializer(client, '"string"'), "customer-40", "customer-40")
    by_header = {"schema.id.serializer": header_schema_id_serializer}
    add("avro-header", AvroSerializer(client, json.dumps(ORDER), conf=by_header), ORDER_VALUE, expected)
    order = {"id": 40, "item": "plum"}
    add("json", JSONSerializer(json.dumps(JSON_SCHEMA), client), order, order)

    with TemporaryDirectory() as directory:
        (Path(directory) / "order.proto").write_text(PROTO)
        (Path(directory) / "common.proto").write_text(COMMON)
        files = ("order.proto", "common.proto")
        protoc = [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{directory}",
            f"--python_out={directory}",
            *files,
        ]
        subprocess.run(protoc, check=True)
        sys.path.insert(0, directory)
        shop = importlib.import_module("order_pb2")
        message = shop.Order(id=40, item_name="plum", tags=["a", "b"], status=1)
        message.price.amount = "12.50"
        message.at.FromJsonString("2026-11-21T09:25:00Z")
        fields = {
            "id": "40",
            "item_name": "plum",
            "price": {"amount": "12.50"},
            "at": "2026-11-21T09:25:00Z",
            "tags": ["a", "b"],
            "status": "PAID",
        }
        conf = {"use.deprecated.format": False}
        payment = {"token": "AP8=", "done": True}
        for name, kind, more, value, result in (
            ("protobuf-first", shop.Order, {}, message, fields),
            ("protobuf-nested", shop.Order.Line, {}, shop.Order.Line(count=3), {"count": 3}),
            ("protobuf-second", shop.Payment, {}, shop.Payment(token=b"\0\xff", done=True), payment),
            ("protobuf-header", shop.Payment, by_header, shop.Payment(token=b"\0\xff", done=True), payment),
        ):
            add(name, ProtobufSerializer(kind, client, conf=conf | more), value, result)
    OUT.write_text(json.dumps({"schemas": registered(client), "vectors": vectors}, indent=1) + "\n")


def registered(client: SchemaRegistryClient) -> list[dict[str, Any]]:
    """Every registered schema, as a registry answers: the mock returns what was posted, for Protobuf the
    serialized descriptor, a registry its text.
    """
    rows = []
    for subject in client.get_subjects():
        for version in client.get_versions(subject):
            stored = client.get_version(subject, version)
            references = [
                {"name": each.name, "subject": each.subject, "version": each.version}
                for each in stored.schema.references or []
            ]
            rows.append(
                {
                    "subject": subject,
                    "version": version,
                    "id": stored.schema_id,
                    "guid": stored.guid,
                    "schemaType": stored.schema.schema_type,
                    "schema": {"PROTOBUF": COMMON if subject == "common.proto" else PROTO}.get(
                        stored.schema.schema_type, stored.schema.schema_str
                    ),
                    "references": references,
                }
            )
    return rows


if __name__ == "__main__":
    main()
