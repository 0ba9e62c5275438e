# mypy: ignore-errors
"""Compiled core of the addressed random streams: Philox4x32-10, uniforms, normals, and exp and log without libm.

The C library's transcendental functions are avoided because their last bit differs between machines, and a last bit can
change the outcome of a draw. Only +, -, *, /, sqrt and integer arithmetic are used, which IEEE 754 defines exactly.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numba.extending import intrinsic

from recsim_mnar.kernels.jit import compiled_as, inlined, kernel

# Shifts, masks, and the multipliers and key increments of Philox4x32 (Salmon et al. 2011), typed so that all arithmetic
# is unsigned.
_U32 = np.uint64(32)
_MASK = np.uint64(0xFFFFFFFF)
_M0 = np.uint64(0xD2511F53)
_M1 = np.uint64(0xCD9E8D57)
_W0 = np.uint64(0x9E3779B9)
_W1 = np.uint64(0xBB67AE85)
_ELEVEN = np.uint64(11)
_TO_UNIT_53 = 1.0 / 9007199254740992.0
_TO_UNIT_32 = 1.0 / 4294967296.0


@inlined
def philox(c0, c1, c2, c3, k0, k1):
    """Return the four random words that Philox4x32-10 (Salmon et al. 2011) makes of a counter c and a key k.

    All arguments and results are 32-bit words, held in uint64 so that products do not overflow.
    """
    for _ in range(10):
        p0 = _M0 * c0
        p1 = _M1 * c2
        n0 = (p1 >> _U32) ^ c1 ^ k0
        n2 = (p0 >> _U32) ^ c3 ^ k1
        c1 = p1 & _MASK
        c3 = p0 & _MASK
        c0 = n0
        c2 = n2
        k0 = (k0 + _W0) & _MASK
        k1 = (k1 + _W1) & _MASK
    return c0, c1, c2, c3


@inlined
def block(seed, stream, user, index):
    """Return the four 32-bit words at address (seed, stream, user, index), as uint64."""
    return philox(index & _MASK, stream & _MASK, user & _MASK, user >> _U32, seed & _MASK, seed >> _U32)


@inlined
def unit53(high, low):
    """Return the uniform on [0, 1) with 53 random bits that two 32-bit words (in uint64) make."""
    return np.float64(((high << _U32) | low) >> _ELEVEN) * _TO_UNIT_53


@intrinsic
def _double_from_bits(typingctx, bits):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(types.float64))

    return types.float64(types.int64), codegen


@intrinsic
def _bits_from_double(typingctx, value):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(types.int64))

    return types.int64(types.float64), codegen


@intrinsic
def _single_from_bits(typingctx, bits):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(types.float32))

    return types.float32(types.int32), codegen


# An intrinsic has no Python body. The functions below are what uncompiled kernels call instead.


@compiled_as(_double_from_bits)
def double_from_bits(bits):
    """Return the float64 with the bit pattern of an int64."""
    return np.int64(bits).view(np.float64)


@compiled_as(_bits_from_double)
def bits_from_double(value):
    """Return the bit pattern of a float64, as int64."""
    return np.float64(value).view(np.int64)


@compiled_as(_single_from_bits)
def single_from_bits(bits):
    """Return the float32 with the bit pattern of an int32."""
    return np.int32(bits).view(np.float32)


_LOG2E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01  # its low 32 bits are zero, so n * _LN2_HIGH is exact
_LN2_LOW = 1.90821492927058770002e-10


@inlined
def exp64(x):
    """Return exp(x) of a float64, with a relative error below 3e-16; x is first clipped to [-708, 709].

    The argument is reduced to x = n ln(2) + r with |r| <= ln(2)/2; exp(r) is a Taylor polynomial, and the factor 2^n is
    made by writing n to the exponent bits of a float64.
    """
    x = min(max(x, -708.0), 709.0)
    n = np.floor(x * _LOG2E + 0.5)
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    # Taylor series to degree 13 on |r| <= ln(2)/2: the first term left out is below 5e-18.
    y = 1.6059043836821613e-10
    y = y * r + 2.08767569878681e-09
    y = y * r + 2.505210838544172e-08
    y = y * r + 2.755731922398589e-07
    y = y * r + 2.7557319223985893e-06
    y = y * r + 2.48015873015873e-05
    y = y * r + 1.984126984126984e-04
    y = y * r + 1.388888888888889e-03
    y = y * r + 8.333333333333333e-03
    y = y * r + 4.1666666666666664e-02
    y = y * r + 1.6666666666666666e-01
    y = y * r + 0.5
    y = y * (r * r) + r
    y = y + 1.0
    return y * double_from_bits((np.int64(n) + np.int64(1023)) << np.int64(52))


_F = np.float32
_LOG2E_32 = _F(1.44269504088896341)
_LN2_HIGH_32 = _F(0.693359375)
_LN2_LOW_32 = _F(-2.12194440e-4)
_E0 = _F(1.9875691500e-4)
_E1 = _F(1.3981999507e-3)
_E2 = _F(8.3334519073e-3)
_E3 = _F(4.1665795894e-2)
_E4 = _F(1.6666665459e-1)
_E5 = _F(5.0000001201e-1)
_ONE_32 = _F(1.0)
_HALF_32 = _F(0.5)
_LOWEST_32 = _F(-87.3)
_HIGHEST_32 = _F(88.0)


@inlined
def exp32(x):
    """Return exp(x) of a float32, with a relative error below 2e-7; x is first clipped to [-87.3, 88].

    The argument is reduced as in :func:`exp64`; the polynomial is that of the Cephes library's ``expf``.
    """
    x = min(max(x, _LOWEST_32), _HIGHEST_32)
    n = np.floor(x * _LOG2E_32 + _HALF_32)
    r = x - n * _LN2_HIGH_32
    r = r - n * _LN2_LOW_32
    y = _E0
    y = y * r + _E1
    y = y * r + _E2
    y = y * r + _E3
    y = y * r + _E4
    y = y * r + _E5
    y = y * r * r + r + _ONE_32
    return y * single_from_bits(np.int32((np.int32(n) + np.int32(127)) << np.int32(23)))


@inlined
def log64(x):
    """Return the natural logarithm of a positive normal float64, with a relative error below 1e-15.

    As in fdlibm, x = 2^n (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)], and log(1 + f) is a polynomial in s = f / (2 + f).
    """
    bits = bits_from_double(x)
    exponent = (bits >> np.int64(52)) - np.int64(1023)
    mantissa = double_from_bits((bits & np.int64(0x000FFFFFFFFFFFFF)) | np.int64(0x3FF0000000000000))
    if mantissa > 1.4142135623730951:
        mantissa = mantissa * 0.5
        exponent = exponent + np.int64(1)
    f = mantissa - 1.0
    s = f / (2.0 + f)
    z = s * s
    r = 1.479819860511658591e-01
    r = r * z + 1.531383769920937332e-01
    r = r * z + 1.818357216161805012e-01
    r = r * z + 2.222219843214978396e-01
    r = r * z + 2.857142874366239149e-01
    r = r * z + 3.999999999940941908e-01
    r = r * z + 6.666666666666735130e-01
    r = r * z
    half = 0.5 * f * f
    n = np.float64(exponent)
    # n ln(2) + log(1 + f), smallest terms first, with ln(2) in two parts: the large terms would swallow their digits.
    return n * _LN2_HIGH - ((half - (s * (half + r) + n * _LN2_LOW)) - f)


_CENTRE = 0.425
"""Largest distance of a probability from 1/2 at which the central approximation of the normal quantile holds."""


@inlined
def centred(word):
    """Return q = (word + 1/2) / 2^32 - 1/2: the probability that a 32-bit word stands for, minus 1/2."""
    return (np.float64(word) + 0.5) * _TO_UNIT_32 - 0.5


@inlined
def in_tail(q):
    """Return True if the quantile at q needs :func:`normal_tail`, False if it needs :func:`normal_centre`."""
    return abs(q) > _CENTRE


@inlined
def normal_centre(q):
    """Return the standard normal quantile of probability q + 1/2 for |q| <= .425 (Wichura's PPND16, AS 241)."""
    r = 0.180625 - q * q
    top = 2.5090809287301226727e3
    top = top * r + 3.3430575583588128105e4
    top = top * r + 6.7265770927008700853e4
    top = top * r + 4.5921953931549871457e4
    top = top * r + 1.3731693765509461125e4
    top = top * r + 1.9715909503065514427e3
    top = top * r + 1.3314166789178437745e2
    top = top * r + 3.3871328727963666080e0
    low = 5.2264952788528545610e3
    low = low * r + 2.8729085735721942674e4
    low = low * r + 3.9307895800092710610e4
    low = low * r + 2.1213794301586595867e4
    low = low * r + 5.3941960214247511077e3
    low = low * r + 6.8718700749205790830e2
    low = low * r + 4.2313330701600911252e1
    low = low * r + 1.0
    return q * top / low


@inlined
def normal_tail(q):
    """Return the standard normal quantile of probability q + 1/2 for .425 < |q| < 1/2 - 1e-11.

    This is the middle branch of AS 241. A 32-bit word never leads beyond its range.
    """
    r = math.sqrt(-log64(0.5 - abs(q))) - 1.6
    top = 7.74545014278341407640e-4
    top = top * r + 2.27238449892691845833e-2
    top = top * r + 2.41780725177450611770e-1
    top = top * r + 1.27045825245236838258e0
    top = top * r + 3.64784832476320460504e0
    top = top * r + 5.76949722146069140550e0
    top = top * r + 4.63033784615654529590e0
    top = top * r + 1.42343711074968357734e0
    low = 1.05075007164441684324e-9
    low = low * r + 5.47593808499534494600e-4
    low = low * r + 1.51986665636164571966e-2
    low = low * r + 1.48103976427480074590e-1
    low = low * r + 6.89767334985100004550e-1
    low = low * r + 1.67638483018380384940e0
    low = low * r + 2.05319162663775882187e0
    low = low * r + 1.0
    z = top / low
    if q > 0.0:
        return z
    return -z


@inlined
def normal(word):
    """Return the standard normal that one 32-bit word makes: the quantile of (word + 1/2) / 2^32, so |z| < 6.34."""
    q = centred(word)
    if in_tail(q):
        return normal_tail(q)
    return normal_centre(q)


@kernel
def fill_blocks(seed, stream, users, indices, words):
    """Write the four words of each address (seed, stream, users[i], indices[i]) to ``words[i]`` (n x 4, uint32)."""
    for i in range(users.size):
        a, b, c, d = block(seed, stream, np.uint64(users[i]), np.uint64(indices[i]))
        words[i, 0] = np.uint32(a)
        words[i, 1] = np.uint32(b)
        words[i, 2] = np.uint32(c)
        words[i, 3] = np.uint32(d)


@kernel
def fill_uniforms(seed, stream, users, indices, out):
    """Write the uniform with 53 random bits at each address (seed, stream, users[i], indices[i]) to ``out[i]``."""
    for i in range(users.size):
        a, b, _c, _d = block(seed, stream, np.uint64(users[i]), np.uint64(indices[i]))
        out[i] = unit53(a, b)


@kernel
def fill_normals(seed, stream, user, first, out):
    """Write k standard normals of each user ``user + i`` to row i of ``out`` (n, k).

    A block of four words makes four normals; the blocks have the indices ``first``, ``first`` + 1, ...
    """
    n, k = out.shape
    for i in range(n):
        words = block(seed, stream, np.uint64(user + i), np.uint64(first))
        for j in range(k):
            if j % 4 == 0 and j > 0:
                words = block(seed, stream, np.uint64(user + i), np.uint64(first + j // 4))
            out[i, j] = normal(words[j % 4])


@kernel
def map_normal(words, out):
    """Write the standard normal that the 32-bit word ``words[i]`` makes to ``out[i]``."""
    for i in range(words.size):
        out[i] = normal(np.uint64(words[i]))


@kernel
def map_exp(x, out):
    """Write exp64(x[i]) to ``out[i]``."""
    for i in range(x.size):
        out[i] = exp64(x[i])


@kernel
def map_exp32(x, out):
    """Write exp32(x[i]) to ``out[i]``."""
    for i in range(x.size):
        out[i] = exp32(x[i])


@kernel
def map_log(x, out):
    """Write log64(x[i]) to ``out[i]``."""
    for i in range(x.size):
        out[i] = log64(x[i])
