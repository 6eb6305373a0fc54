"""Why some of what brute force finds to need no communication is refused all the same."""

from __future__ import annotations

# (reason, rows)
REASONS = [
    ("an integer wraps: the least has no negative; how many factors turn a sign is the mesh's size",
     "neg negative mul multiply rsub sub add"),
    ("-0.0 has a root of its own: rsqrt(-0.0) is -inf", "rsqrt"),
    ("a NaN gives what is no NaN, so that the Partial of the results does not keep it",
     "sign fmax fmin"),
    ("an identity on integers, or on what the numbers happen to be", "ceil floor round trunc"),
    ("finite parts add up or multiply to what is not", "isnan isinf isfinite"),
    ("a product underflows: no part is zero, but the whole",
     "logical_not logical_and logical_or logical_xor all"),
    ("of bools as sum (or) and product (and) only max and min go through",
     "bitwise_not bitwise_and bitwise_or bitwise_xor any amin amax"),
    ("rises or falls for some numbers and second operands, which are not looked at",
     "softplus elu leaky_relu lerp pow div divide true_divide div__trunc floor_divide fmod"
     " remainder atan2 eq ne lt le gt ge clamp clamp__min clamp__max where addcmul addcdiv"),
    ("by chance, among few numbers", "layer_norm"),
]  # fmt: skip


def reason(row: str) -> str:
    """\"\": there is none."""
    return next((why for why, names in REASONS if row in names.split()), "")
