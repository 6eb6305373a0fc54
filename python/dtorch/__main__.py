"""python -m dtorch: the configuration and a self-check; exit status 1 when a check fails."""

from __future__ import annotations

import sys

from ._config import self_check, show_config


def main() -> int:
    """Prints the configuration and the result of each check."""
    show_config()
    results = self_check()
    for name, passed, why in results:
        print(f"  check {name:<15} {'ok' if passed else 'FAILED: ' + why}")
    return 0 if all(passed for _, passed, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
