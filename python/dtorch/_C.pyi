"""The extension module, as far as the package's own code needs to know it."""

from typing import Any

Tensor: Any
functions: dict[str, Any]
rows: dict[str, Any]

def __getattr__(name: str) -> Any: ...
