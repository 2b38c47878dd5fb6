"""Classes of protobuf messages, built from a table of their fields, for messages that no package on PyPI contains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aggr.extend.arguments import MissingExtra

Table = Mapping[str, Mapping[str, tuple[int, str]]]


def message_classes(package: str, table: Table, extra: str) -> dict[str, type[Any]]:
    """Return a class for each message of a table, by the name of the message.

    ``table`` has the form message → field → (number, type). A type is the name of a protobuf type or of another message
    of the table, optionally after the word ``repeated``. ``package`` is the protobuf package of the messages.

    Raise ``MissingExtra``, which names the extra ``extra``, if protobuf is not installed.

    >>> table = {"Pair": {"name": (1, "string")}, "Pairs": {"pair": (3, "repeated Pair")}}
    >>> message_classes("x", table, "prometheus")["Pairs"](pair=[{"name": "a"}]).SerializeToString()
    b'\\x1a\\x03\\n\\x01a'
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise MissingExtra("a Protocol Buffers message", extra, error) from None
    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package)
    for message, fields in table.items():
        descriptor = file.message_type.add(name=message)
        for field, (number, type_text) in fields.items():
            type_name = type_text.removeprefix("repeated ")
            label = "optional" if type_name == type_text else "repeated"
            field_descriptor = descriptor.field.add(name=field, number=number, label=f"LABEL_{label.upper()}")
            if type_name in table:
                field_descriptor.type = field_type.TYPE_MESSAGE
                field_descriptor.type_name = f".{package}.{type_name}"
            else:
                field_descriptor.type = field_type.Type.Value(f"TYPE_{type_name.upper()}")
    # A separate descriptor pool is used, because an application may have registered these messages in the default pool.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptors = {name: pool.FindMessageTypeByName(f"{package}.{name}") for name in table}
    return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in descriptors.items()}
