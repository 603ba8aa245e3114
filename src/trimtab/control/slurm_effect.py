"""What a change of weights does to jobs that wait, as `sprio` shows it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from trimtab.control.adapter import Unreachable
from trimtab.control.slurm_commands import Commands

# Column of sprio -> its weighted and its normalised factor. sprio divides the first by the weight that is
# shown, so a normalised factor that jumps with the weight is one that still has the old weight in it.
_FACTORS = {"jobsize": "%J %j", "partition": "%P %p", "qos": "%Q %q"}
_FORM = "trimtab %i " + " ".join(_FACTORS.values())
_CLOSE = 1e-6


class Factor(NamedTuple):
    """A factor of a job's priority: times its weight, and without it."""

    weighted: float
    bare: float


# Job -> column -> factor. Age and fair share are left out: they move by themselves.
Factors = Mapping[str, Mapping[str, Factor]]


def factors_of(commands: Commands) -> Factors:
    """Return the factors of jobs that wait; none where priorities are not made of factors.

    Raises:
        Unreachable: If sprio does not answer in time, or with other columns than were asked for.
    """
    answer = commands.run("sprio", "-h", "-o", _FORM)
    found: dict[str, dict[str, Factor]] = {}
    for line in answer.out.splitlines() if answer.code == 0 else ():
        mark, _, rest = line.partition(" ")
        if mark != "trimtab":
            continue
        fields = rest.split()
        if len(fields) != 1 + 2 * len(_FACTORS) or not all(
            re.fullmatch(r"-?[\d.]+", one) for one in fields[1:]
        ):
            raise Unreachable("sprio: answers with other columns than were asked for.")
        numbers = [float(one) for one in fields[1:]]
        found[fields[0]] = {
            name: Factor(*numbers[2 * place : 2 * place + 2]) for place, name in enumerate(_FACTORS)
        }
    return found


def has_effect(
    before: Factors, now: Factors, weights: Mapping[str, int], turned: Collection[str] = ()
) -> bool:
    """Whether no job shows a factor that still has an old weight in it.

    Args:
        weights: Those shown now, by column. A job that is not in both says nothing, nor does a factor that
            was 0 before, as its weight may have been.
        turned: Columns whose factors are one less what they were (PriorityFavorSmall turns that of size).
    """
    for job, old in before.items():
        for name, factor in now.get(job, {}).items():
            if weights.get(name, 0) == 0:
                stale = factor.weighted != 0
            else:
                wanted = 1 - old[name].bare if name in turned else old[name].bare
                stale = old[name].bare > 0 and abs(factor.bare - wanted) > _CLOSE
            if stale:
                return False
    return True
