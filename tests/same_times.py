"""Whether what a stranger asks of is served like what nobody has asked: times of both, compared as Kolmogorov and Smirnov do."""
import math
import time


def same_distribution(a, b):
    """The probability that two samples of one distribution are as far apart, by the asymptotic series."""
    a, b = sorted(a), sorted(b)
    distance = i = j = 0
    while i < len(a) and j < len(b):
        at = min(a[i], b[j])
        while i < len(a) and a[i] <= at:
            i += 1
        while j < len(b) and b[j] <= at:
            j += 1
        distance = max(distance, abs(i / len(a) - j / len(b)))
    n = len(a) * len(b) / (len(a) + len(b))
    x = (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n)) * distance
    if x < 0.2:
        return 1.0
    return min(1.0, max(0.0, sum((2 if k % 2 else -2) * math.exp(-2 * k * k * x * x) for k in range(1, 101))))


def check_alike(ask, known, fresh, prepare=lambda number: None):
    """`ask(number)` by somebody who may find neither: numbers that another tenant has asked, and as many that nobody has. Their times are
    of one distribution: that both halves of the pairs look otherwise by chance is one in ten thousand. `prepare(number)` goes before the
    pair of a known one."""
    probabilities = []
    half = len(known) // 2
    for part in (slice(0, half), slice(half, 2 * half)):
        times = {True: [], False: []}
        for i, pair in enumerate(zip(known[part], fresh[part])):
            prepare(pair[0])
            for is_known in (i % 2 == 0, i % 2 != 0):  # whatever else this machine does meets both alike
                begun = time.monotonic()
                ask(pair[0 if is_known else 1])
                times[is_known].append(time.monotonic() - begun)
        probabilities.append(same_distribution(times[True], times[False]))
        if probabilities[-1] > 0.01:
            return
    raise AssertionError(f"what another tenant has asked differs in its time from what nobody has: p {probabilities}")


# It sees what differs, and only that.
_EVEN = [i / 100 for i in range(100)]
assert same_distribution(_EVEN, [x + 0.004 for x in _EVEN]) > 0.9
assert same_distribution(_EVEN, [x + 0.3 for x in _EVEN]) < 1e-3
