"""What ops with several results return: named tuples with torch's field names and printing."""

from __future__ import annotations

from collections import namedtuple
from typing import Any


def _make(name: str, *fields: str) -> Any:
    base: Any = namedtuple(name, fields)  # type: ignore[misc]

    def __repr__(self: Any) -> str:
        items = ",\n".join(f"{field}={value!r}" for field, value in zip(fields, self, strict=True))
        return f"torch.return_types.{name}(\n{items})"

    return type(
        name, (base,), {"__slots__": (), "__repr__": __repr__, "__module__": "dtorch.return_types"}
    )


max = _make("max", "values", "indices")
min = _make("min", "values", "indices")
aminmax = _make("aminmax", "min", "max")
