"""The protobuf messages of ``proto/``: made by ``make generate``, never edited."""
