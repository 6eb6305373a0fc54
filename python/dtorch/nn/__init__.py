"""The part of torch.nn that is there so far: functions."""

from . import functional

__all__ = ["functional"]
