"""Grad mode: a context variable, so that one task's no_grad() never leaks into another.

Autograd itself is a later part of dtorch; the mode is already kept, and backward() says so.
"""

from __future__ import annotations

import functools
import inspect
from contextvars import ContextVar
from typing import Any

_enabled: ContextVar[bool] = ContextVar("dtorch.grad_enabled", default=True)
_inference: ContextVar[bool] = ContextVar("dtorch.inference_mode", default=False)


def is_grad_enabled() -> bool:
    """Whether grad mode is on in this context."""
    return _enabled.get()


def is_inference_mode_enabled() -> bool:
    """Whether inference mode is on in this context."""
    return _inference.get()


class _Mode:
    """A context manager and decorator that sets the modes inside and puts them back after."""

    _grad: bool | None = None
    _infer: bool | None = None

    def __init__(self) -> None:
        self._stack: list[tuple[bool, bool]] = []

    def __enter__(self) -> None:
        self._stack.append((_enabled.get(), _inference.get()))
        if self._grad is not None:
            _enabled.set(self._grad)
        if self._infer is not None:
            _inference.set(self._infer)

    def __exit__(self, *exception: object) -> None:
        grad, infer = self._stack.pop()
        _enabled.set(grad)
        _inference.set(infer)

    def _clone(self) -> _Mode:
        return type(self)()

    def __call__(self, function: Any) -> Any:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wrapped_async(*args: Any, **kwargs: Any) -> Any:
                with self._clone():
                    return await function(*args, **kwargs)

            return wrapped_async

        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def wrapped_generator(*args: Any, **kwargs: Any) -> Any:
                generator = function(*args, **kwargs)
                send: Any = None
                while True:  # the mode holds while the generator runs, not while it is suspended
                    try:
                        with self._clone():
                            item = generator.send(send)
                    except StopIteration as stop:
                        return stop.value
                    try:
                        send = yield item
                    except GeneratorExit:
                        generator.close()
                        raise

            return wrapped_generator

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self._clone():
                return function(*args, **kwargs)

        return wrapped


class no_grad(_Mode):
    """Grad mode off, as a ``with`` block or a decorator."""

    _grad = False

    def __new__(cls, function: Any = None) -> Any:
        self = object.__new__(cls)
        if function is None:
            return self
        _Mode.__init__(self)
        return self(function)

    def __init__(self, function: Any = None) -> None:
        super().__init__()


class enable_grad(no_grad):
    """Grad mode on, as a ``with`` block or a decorator."""

    _grad = True


class set_grad_enabled(_Mode):
    """Sets grad mode at once; as a ``with`` block it is put back after."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self._grad = bool(mode)
        self._before = _enabled.get()
        _enabled.set(self._grad)

    def __enter__(self) -> None:
        self._stack.append((self._before, _inference.get()))
        _enabled.set(bool(self._grad))

    def _clone(self) -> _Mode:
        return (enable_grad if self._grad else no_grad)()  # type: ignore[no-any-return]

    def __call__(self, function: Any) -> Any:
        _enabled.set(self._before)  # as a decorator it has no effect outside the function
        return super().__call__(function)


class inference_mode(_Mode):
    """Grad mode off, and tensors made inside are for inference only."""

    def __new__(cls, mode: Any = True) -> Any:
        self = object.__new__(cls)
        if isinstance(mode, bool):
            return self
        _Mode.__init__(self)
        self._set(True)
        return self(mode)

    def __init__(self, mode: Any = True) -> None:
        super().__init__()
        self._set(mode is not False)

    def _set(self, mode: bool) -> None:
        self._grad = False if mode else None
        self._infer = mode

    def _clone(self) -> _Mode:
        return type(self)(bool(self._infer))  # type: ignore[no-any-return]
