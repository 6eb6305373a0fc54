"""Weights placed on a mesh by name: plans, and ``distribute``.

A *plan* maps patterns of tensor names to where such tensors go:

    plan = {
        "*.attention.query.*": dtorch.column_wise("tp"),
        "*.attention.output.*": dtorch.row_wise("tp"),
        "embeddings.words.weight": dtorch.vocab_wise("tp"),
        "experts.*": {"dp": Shard(0)},
    }
    weights = await dtorch.distribute(dtorch.load_safetensors(path), mesh, plan)

Patterns are those of fnmatch (``*`` also matches dots, ``?`` one character, ``[ab]`` one of them),
must match the whole name, and are case-sensitive. The first that matches wins; what none matches is
replicated. A pattern that places nothing is an error, so that a misspelt one is not a slow program.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import translate
from typing import Any, NamedTuple

from . import _C, _dist
from ._safetensors import SafetensorsDict
from .distributed_spec import DeviceMesh, Placement, Placements, Replicate, Shard

Plan = Mapping[str, Any]
"""Pattern -> placements by mesh dim (a dict), one for each mesh dim (a list), or a word below."""


class Word(NamedTuple):
    """A ready-made entry of a plan: what it does along one mesh dim depends on the tensor's rank.

    Made by :func:`column_wise`, :func:`row_wise` and :func:`vocab_wise`.
    """

    name: str
    mesh_dim: str | int
    matrix: Placement  # of tensors with two dims or more
    vector: Placement  # of tensors with one dim


def column_wise(mesh_dim: str | int) -> Word:
    """For the product whose outputs are dealt out: weight [out, in] and bias [out] are Shard(0)."""
    return Word("column_wise", mesh_dim, Shard(0), Shard(0))


def row_wise(mesh_dim: str | int) -> Word:
    """For the product that follows a column-wise one: weight [out, in] is Shard(1), bias Replicate.

    Its result is Partial(sum) along that mesh dim; the bias is counted once.
    """
    return Word("row_wise", mesh_dim, Shard(1), Replicate())


def vocab_wise(mesh_dim: str | int) -> Word:
    """For an embedding table [words, features] whose rows are dealt out: Shard(0).

    A look-up in it gives Partial(sum) along that mesh dim.
    """
    return Word("vocab_wise", mesh_dim, Shard(0), Shard(0))


def distribute(weights: Mapping[str, Any], mesh: DeviceMesh, plan: Plan | None = None) -> Any:
    """Tensors placed on a mesh: ``weights = await dtorch.distribute(weights, mesh, plan)``.

    Returns at once; tensors may still be computed or read from a file, and each of the results can
    be used in ops and awaited on its own. Tensors on another mesh are redistributed; what is where
    the plan puts it stays the same object. A tensor that comes under several names, with one
    placement, remains one.

    Args:
        weights: tensors by name.
        mesh: where they go.
        plan: patterns of names -> placements, see the top of this page; None: all replicated.

    Returns:
        A dict in the order of `weights`, which can be awaited as a whole.

    Raises:
        ValueError: a pattern that places no tensor, an unknown mesh dim, a wrong number of
            placements, or a Shard of a dim that a tensor does not have; the text names both.
        TypeError: something that is no Tensor, or no placement.
    """
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"distribute(): mesh must be a DeviceMesh, not {type(mesh).__name__}")
    for name, tensor in weights.items():
        if not isinstance(tensor, _C.Tensor):
            kind = type(tensor).__name__
            raise TypeError(f"distribute(): {name!r} must be a dtorch.Tensor, not {kind}")
    ranks = {name: tensor.ndim for name, tensor in weights.items()}
    places = plan_placements("distribute()", ranks, mesh, plan)
    placed: dict[tuple[int, tuple[int, ...]], Any] = {}
    result = {}
    for name, tensor in weights.items():
        where = places[name]
        key = (id(tensor), tuple(p._code for p in where))
        if key not in placed:
            placed[key] = _dist.put(
                tensor, _dist.Place(mesh, where) if not mesh._is_plain else None
            )
        result[name] = placed[key]
    return SafetensorsDict(result, dict(getattr(weights, "metadata", {})))


def plan_placements(
    caller: str, ranks: Mapping[str, int], mesh: DeviceMesh, plan: Plan | None
) -> dict[str, Placements]:
    """Where a plan puts tensors of those names and numbers of dims. Errors as of distribute()."""
    plan = {} if plan is None else plan
    if not isinstance(plan, Mapping):
        raise TypeError(f"{caller}: a plan is a dict of name patterns, not {type(plan).__name__}")
    rules = [_Rule(caller, pattern, entry, mesh) for pattern, entry in plan.items()]
    replicate = mesh.normalise(None)
    result = {}
    for name, rank in ranks.items():
        rule = next((rule for rule in rules if rule.matches(name)), None)
        result[name] = replicate if rule is None else rule.placements(name, rank)
    for index, rule in enumerate(rules):
        if not rule.used:
            _raise_unused(caller, rule, rules[:index], ranks)
    return result


class _Rule:
    """One line of a plan, for one mesh."""

    def __init__(self, caller: str, pattern: str, entry: Any, mesh: DeviceMesh) -> None:
        if not isinstance(pattern, str):
            raise TypeError(f"{caller}: a plan's patterns are strings, not {pattern!r}")
        self.pattern = pattern
        self.matches: Callable[[str], Any] = re.compile(translate(pattern)).match
        self.used = False
        self._where = f"{caller}: plan entry {pattern!r}"
        self._mesh = mesh
        self._entry = entry
        if isinstance(entry, Word):
            self._dim_of(entry.mesh_dim)
        elif isinstance(entry, Mapping):
            for mesh_dim in entry:
                self._dim_of(mesh_dim)
        elif isinstance(entry, str | Placement) or not isinstance(entry, Sequence):
            raise TypeError(
                f"{self._where}: must be a dict by mesh dim, a list with a placement for each "
                f"mesh dim, column_wise(), row_wise() or vocab_wise(), not {entry!r}"
            )

    def _dim_of(self, mesh_dim: Any) -> int:
        """The number of a mesh dim, given by number or name."""
        names = self._mesh.mesh_dim_names
        if isinstance(mesh_dim, str) and names is not None and mesh_dim in names:
            return names.index(mesh_dim)
        if isinstance(mesh_dim, int) and -self._mesh.ndim <= mesh_dim < self._mesh.ndim:
            return mesh_dim % self._mesh.ndim
        known = f"has the dims {', '.join(names)}" if names else f"has {self._mesh.ndim} dims"
        raise ValueError(
            f"{self._where}: no mesh dim {mesh_dim!r}: the mesh {self._mesh!r} {known}"
            + ("" if names else " without names")
        )

    def placements(self, name: str, rank: int) -> Placements:
        """Where the tensor of that name goes."""
        self.used = True
        given: list[Any]
        if isinstance(self._entry, Word):
            given = [Replicate()] * self._mesh.ndim
            word = self._entry
            given[self._dim_of(word.mesh_dim)] = word.vector if rank == 1 else word.matrix
        elif isinstance(self._entry, Mapping):
            given = [Replicate()] * self._mesh.ndim
            for mesh_dim, placement in self._entry.items():
                given[self._dim_of(mesh_dim)] = placement
        else:
            given = list(self._entry)
        try:
            return self._mesh.normalise(given, rank)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{self._where}, tensor {name!r}: {error}") from None


def _raise_unused(caller: str, rule: _Rule, before: list[_Rule], names: Mapping[str, int]) -> None:
    taken = next((name for name in names if rule.matches(name)), None)
    if taken is not None:
        first = next(other.pattern for other in before if other.matches(taken))
        raise ValueError(
            f"{caller}: plan entry {rule.pattern!r} is never used: an entry before it takes all "
            f"that it matches ({first!r} takes {taken!r})"
        )
    near = difflib.get_close_matches(rule.pattern, list(names), n=3, cutoff=0.3)
    hint = f"; similar names: {', '.join(near)}" if near else ""
    raise ValueError(f"{caller}: plan entry {rule.pattern!r} matches no tensor{hint}")
