"""Roles of a file's columns: by its own names, by usual names, or as the user says."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from recsim_mnar.errors import UserError, nearest

NAMED, RECOGNISED, OWN_SCHEMA, GUESSED = "named", "recognised", "own schema", "guessed"
"""How a column was found: the user said so, a usual name, the name in our own logs, or the words of its name."""

_ITEMS = (
    "item",
    "itemid iid movieid productid product parentasin articleid article newsid trackid songid "
    "artistid bookid isbn businessid gameid videoid sku skuid productcode itemcode offerid bannerid adid creativeid "
    "documentid docid contentid artikel artikelid artikelnr artikelnummer produkt produktid produktnr produktnummer",
    "itemidx itemindex asin",
)

USUAL_NAMES: dict[str, tuple[tuple[str, ...], ...]] = {
    role: tuple(tuple(tier.split()) for tier in tiers)
    for role, tiers in {
        "user": (
            "user",
            "userid uid visitorid visitor customerid customer memberid member accountid profileid "
            "reviewerid clientid client personid shopperid shopper buyerid subscriberid playerid "
            "patientid householdid householdkey fullvisitorid kunde kundenid kundennr kundennummer nutzer nutzerid",
            "useridx userindex cookieid cookie deviceid",
            "sessionid session",
        ),
        "item": _ITEMS,
        "action": (
            "action",
            "actionid arm armid chosenaction actiontaken chosenarm recommendation recommendeditem "
            "recommendeditemid shownitem shownitemid displayeditem",
            *_ITEMS,
        ),
        "reward": (
            "reward",
            "click clicks clicked isclick isclicked wasclicked didclick nclicks rewards converted conversion "
            "conversions isconv isconversion isconverted didconvert "
            "purchased ispurchase isbuy bought revenue payoff outcome response feedback label",
            "rating stars y",
        ),
        "propensity": (
            "propensity",
            "propensityscore propensities pscore propscore prob probability actionprob actionprobability "
            "loggingprob loggingprobability loggingpropensity loggedprob loggedprobability "
            "loggedpropensity behaviorprob behaviourprob behaviorprobability behaviourprobability "
            "selectionprobability displayprobability pi0 pib",
            "p",
        ),
        "time": (
            "time",
            "timestamp ts datetime eventtime unixreviewtime createdat created occurredat servedat shownat",
            "date day zeit zeitpunkt zeitstempel datum",
            "t viewed",
        ),
        "event": (
            "event",
            "eventtype eventname interactiontype behaviortype behaviourtype actiontype",
        ),
        "logger": (
            "logger",
            "loggerid loggingpolicy behaviorpolicy behaviourpolicy policy policyid policyname",
            "variant abgroup experimentgroup",
        ),
        "slate": (
            "slate",
            "slateid slatenumber rankingid listid impressionid requestid queryid qid searchid pageviewid serveid "
            "recommendationid carouselid responseid",
            "impression request ranking list query sessionid session",
        ),
        "weight": ("sampleweight", "weight importanceweight"),
        "position": ("position", "pos rank slot place itemposition itemrank displayposition slotid slotindex"),
    }.items()
}
"""Names by which a column is recognised, a role: tiers, best first; two columns of one tier are an ambiguity.

In lower case without anything but letters and digits. The first tier is the name in our own logs.
"""

_USUAL = {role: {name for tier in tiers for name in tier} for role, tiers in USUAL_NAMES.items()}
"""All of them, by role."""

_ENDINGS = {"item": ("sku",), "action": ("sku",), "time": ("at", "ts", "timestamp", "datetime")}
"""Last words of longer names by which a column is recognised where none has a usual name of the first two tiers."""

_PERSONS, _THINGS, _OUTCOMES, _NUMBERS, _SHOWN = (
    frozenset(words.split())
    for words in (
        "user customer cust client member visitor shopper buyer subscriber player reviewer person account kunde kunden "
        "nutzer mitglied",
        "item sku product prod article artikel produkt offer banner creative asin",
        "order orders ordered click clicks clicked buy bought purchase purchased convert converted conversion sale "
        "sold success bestellt bestellung gekauft klick geklickt",
        "id ids no nr num number nummer key code",
        "shown show displayed served recommended exposed gezeigt",
    )
)
"""Words of names: of who met something; of what was met; of what came of it; for a number; for what was shown."""
_BY_WORDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "user": (_PERSONS, _NUMBERS),
    "item": (_THINGS, _NUMBERS | _SHOWN),
    "action": (_THINGS, _NUMBERS | _SHOWN),
    "reward": (_OUTCOMES, frozenset()),
}
"""Words of which a name has one, and those that it must have besides, by role: ``CustomerNo``, ``SKU shown``."""

_PROBABILITY, _OF_SHOWING, _OF_NEW_POLICIES = (
    frozenset(words.split())
    for words in (
        "prob probs probability probabilities propensity propensities pscore",
        "show shown showing exposure exposed expose display displayed impression serve served serving log logged "
        "logging logger behavior behaviour select selected selection choose chosen choice sample sampled sampling draw "
        "drawn assign assigned assignment action arm item treatment variant variation bandit recommendation "
        "recommended rec old current today production prod of the a is was being to for at",
        "new target candidate challenger proposed eval evaluation",
    )
)
"""Words of names: for a probability; for what it is of, where that is the action shown; for a policy to come."""
_OF_SLATES = {
    "conditional": frozenset(["conditional", "cond", "given", "above"]),
    "slate": frozenset(["slate", "list", "ranking", "page", "whole", "joint"]),
    "set": frozenset(["set", "unordered", "combination"]),
    "marginal": frozenset(["marginal", "position", "slot", "place"]),
}
"""Words of names, by what a probability is of in a log of slates."""
_PER_CENT = frozenset({"pct", "percent", "percentage"})
NONE = "none"
"""In place of a column's name: the file has none of this role, whatever its columns are called."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")

_PERHAPS_SEVERAL = ("cookieid", "cookie", "deviceid", "sessionid", "session")
"""Of the names of users those of which one person may have several."""
_ORDER = ("reward", "propensity", "user", "item", "action", "logger", "time", "event", "weight")
_RECBOLE_TYPE = re.compile(r":(token|float|token_seq|float_seq)$")


def option_of(role: str) -> str:
    """The option of the command line that names the column of a role."""
    return f"--{role}-column"


def plain_name(name: str) -> str:
    """A column's name as :data:`USUAL_NAMES` writes it: lower case, letters and digits, without RecBole's type."""
    return re.sub(r"[^a-z0-9]", "", _RECBOLE_TYPE.sub("", name).lower())


@dataclass(frozen=True)
class Columns:
    """Roles of the columns of a file.

    Attributes:
        names: column by role, roles without a column left out.
        how: for each of these roles :data:`NAMED`, :data:`RECOGNISED`, :data:`OWN_SCHEMA` or :data:`GUESSED`.
        unclear: roles that were not taken because it is not clear which column is meant, and those that could be.
        without: roles that the user says the file has no column of.
    """

    names: dict[str, str] = field(default_factory=dict)
    how: dict[str, str] = field(default_factory=dict)
    unclear: dict[str, tuple[str, ...]] = field(default_factory=dict)
    without: tuple[str, ...] = ()

    def __getitem__(self, role: str) -> str:
        return self.names[role]

    def __contains__(self, role: object) -> bool:
        return role in self.names

    def get(self, role: str) -> str | None:
        """The column of a role, None where there is none."""
        return self.names.get(role)

    def with_action(self, chosen: str, how: str, rivals: tuple[str, ...]) -> Columns:
        """These with the action that was chosen, found as ``how`` says where names did not; or without any."""
        if not (chosen or rivals):
            return self
        away = {*(rivals or (chosen,))}
        names = {role: name for role, name in self.names.items() if role not in ("action", "item") or name not in away}
        unclear = {
            r: columns
            for r, columns in self.unclear.items()
            if r != "action" and not (r == "item" and away & {*columns})
        }
        names, unclear = (names | {"action": chosen}, unclear) if chosen else (names, unclear | {"action": rivals})
        order = [role for role in _ORDER if role in names]
        how_of = {role: how if role == "action" and chosen != self.get("action") else self.how[role] for role in order}
        return Columns({role: names[role] for role in order}, how_of, unclear, self.without)

    @property
    def guessed(self) -> bool:
        """Return whether any column was recognised by a name that is not our logs' own."""
        return RECOGNISED in self.how.values() or GUESSED in self.how.values()

    def line(self) -> str:
        """Describe the columns taken: ``reward: clicks; propensity: pscore; user: kunde (named)``."""
        marks = {NAMED: " (named)", GUESSED: " (guessed)", RECOGNISED: "", OWN_SCHEMA: ""}
        return "; ".join(f"{role}: {name}{marks[self.how[role]]}" for role, name in self.names.items())

    def refuse_unclear(self, source: str, *roles: str) -> None:
        """Raise for a role, of these or of all, that several columns could be meant for.

        Raises:
            UserError: naming the columns and the option.
        """
        for role in roles or self.unclear:
            if role in self.unclear:
                raise UserError(f"{source}: {_which(role, self.unclear[role])}", code="unclear_column")

    def lines(self) -> list[str]:
        """Describe the columns taken, the doubtful ones, and roles for which several columns could be meant."""
        user = self.names.get("user", "")
        text = []
        if self.how.get("user") == RECOGNISED and plain_name(user) in _PERHAPS_SEVERAL:
            text.append(
                f"{user} is taken for the user: if one person has several of them, intervals are too narrow; "
                f"{option_of('user')} names the column of persons"
            )
        return [
            self.line(),
            *text,
            *(f"no {role} taken: {_which(role, names)}" for role, names in self.unclear.items()),
        ]


def _unclear(source: str, known: Sequence[str], wrong: Sequence[str]) -> UserError:
    """One error of all roles without a column, the file's columns listed once."""
    again = f"columns: {', '.join(known)}; "
    more = [line.removeprefix(f"{source}: ").replace(again, "") for line in wrong[1:] if line != wrong[0]]
    return UserError("; ".join([wrong[0], *more]), code="unclear_column")


def find_columns(
    source: str,
    known: Sequence[str],
    *,
    named: Mapping[str, str | None] | None = None,
    needed: Sequence[str] = (),
    optional: Sequence[str] = (),
    leave: Collection[str] = (),
) -> Columns:
    """Find the column of each role.

    What the user names wins. Then the name of our own logs (``reward``), then usual names in tiers, then of
    probabilities names whose words say that they are of what was shown (``shown_prob``); any other name with such a
    word (``click_prob``) is asked about. Of users and items names whose words say so (``CustomerNo``, ``SKU shown``)
    are taken where no usual name is there. A column stands in one role only, roles first come first served in the order
    of ``needed`` and ``optional``.

    Args:
        source: the file, for messages.
        known: the file's columns.
        named: column by role, as the user says; None for a role that is to be recognised, "none" for one of which the
            file has no column.
        needed: roles that must be there.
        optional: roles that may be; where several columns could be meant none is taken, and ``unclear`` says so.
        leave: columns that are something else (the targets).

    Raises:
        UserError: a named column is missing or named twice, no column for a needed role, or several.
    """
    named = named or {}
    without = tuple(role for role, name_given in named.items() if name_given == NONE and NONE not in known)
    names: dict[str, str] = {}
    how: dict[str, str] = {}
    for role, name_given in named.items():
        if name_given is not None and role not in without:
            names[role], how[role] = named_column(source, role, name_given, known), NAMED
            _refuse_twice(source, names)
    unclear: dict[str, tuple[str, ...]] = {}
    wrong: list[str] = []  # said of all roles at once
    for role in (*needed, *optional):
        if role in names or (role in without and role not in needed):
            continue
        free = [name for name in known if name not in leave and name not in names.values() and role not in without]
        candidates, of_own_schema = _recognised(role, free)
        perhaps = not candidates and role == "propensity"
        if perhaps:
            candidates = _perhaps_probabilities(free)
        if len(candidates) == 1 and not perhaps:
            by_words = plain_name(candidates[0]) not in _USUAL[role] and _said_by_words(role, candidates[0])
            names[role], how[role] = candidates[0], OWN_SCHEMA if of_own_schema else GUESSED if by_words else RECOGNISED
        elif candidates and role in needed:
            wrong.append(f"{source}: {_which(role, candidates)}")
        elif candidates:
            unclear[role] = tuple(candidates)
        elif role in needed:
            wrong.append(_missing(source, role, known, [*names.items(), *(("target", name) for name in leave)]))
    if wrong:
        raise _unclear(source, known, wrong)
    order = sorted(names, key=lambda role: _ORDER.index(role) if role in _ORDER else len(_ORDER))
    return Columns({role: names[role] for role in order}, {role: how[role] for role in order}, unclear, without)


def named_column(source: str, role: str, given: str, known: Sequence[str]) -> str:
    """The file's own spelling of a column that the user names.

    Raises:
        UserError: no such column.
    """
    for name in known:
        if given in (name, name.strip(), _RECBOLE_TYPE.sub("", name)):
            return name
    message = f"{source} has no column {given!r}; {nearest(given, known)} ({option_of(role)})"
    raise UserError(message, code="no_such_column")


def _ends_so(role: str, name: str) -> bool:
    """Return whether a name of several words ends as those of a role do: ``viewed_at``, ``item_sku``."""
    words = [word.lower() for word in _WORD.findall(_RECBOLE_TYPE.sub("", name))]
    return len(words) > 1 and words[-1] in _ENDINGS.get(role, ()) and not _OF_NEW_POLICIES & set(words)


def _recognised(role: str, known: Iterable[str]) -> tuple[list[str], bool]:
    """Columns of the best tier that has any, and whether it is the name of our own logs."""
    plain = [(plain_name(name), name) for name in known]
    for rank, tier in enumerate(USUAL_NAMES[role]):
        candidates = [name for short, name in plain if short in tier]
        if not candidates and rank == 1:
            candidates = [name for _, name in plain if _ends_so(role, name)]
            candidates = candidates or [name for _, name in plain if _said_by_words(role, name)]
        if candidates:
            return candidates, rank == 0 and candidates == [tier[0]]
    return [name for _, name in plain if role == "propensity" and of_what_was_shown(name)], False


def _said_by_words(role: str, name: str) -> bool:
    """Return whether all words of a name are for what a role is, and for its number: ``CustomerNo``, ``SKU shown``."""
    words, (of_role, of_others) = _words(name), _BY_WORDS.get(role, (frozenset(), frozenset()))
    return bool(words & of_role and words & of_others) and words <= of_role | of_others


def likely_columns(role: str, known: Iterable[str]) -> list[str]:
    """Columns with a word of a role in their names, whatever other words there are: ``sku_on_tile``."""
    of_role, _ = _BY_WORDS[role]
    return [name for name in known if _words(name) & of_role]


def says_shown(name: str) -> bool:
    """Return whether a name of items says that they were shown: ``shown_item``, ``displayed``, ``arm``."""
    return plain_name(name) in _USUAL["action"] - _USUAL["item"] or bool(_words(name) & _SHOWN)


def _words(name: str) -> set[str]:
    """The words of a column's name, in lower case."""
    return {word.lower() for word in _WORD.findall(_RECBOLE_TYPE.sub("", name))}


def of_what_was_shown(name: str) -> bool:
    """Return whether a name's words are a probability, and otherwise only what says that it is of what was shown."""
    words = _words(name)
    of_what = words - _PROBABILITY - {"p", "pi"} - _PER_CENT
    return of_what < words and of_what <= _OF_SHOWING and bool(of_what)


def slate_probabilities(known: Iterable[str]) -> dict[str, str]:
    """Columns by what their names say their probabilities are of: a slate, a set, an item given those above, ..."""
    by_kind: dict[str, str] = {}
    for name in known:
        words = _words(name)
        kinds = [kind for kind, of_it in _OF_SLATES.items() if words & of_it]
        rest = words - _PROBABILITY - _OF_SHOWING - {"p", "pi"} - _PER_CENT
        if len(kinds) == 1 and words & (_PROBABILITY | {"p", "pi"}) and rest <= _OF_SLATES[kinds[0]]:
            by_kind.setdefault(kinds[0], name)
    return by_kind


def _perhaps_probabilities(known: Iterable[str]) -> list[str]:
    """Columns whose names have a word for a probability, of whatever."""
    return [name for name in known if _words(name) & _PROBABILITY]


def new_policies(known: Iterable[str], *, items: bool = False) -> list[str]:
    """Columns whose names say that they are a new policy's probabilities (``new_prob``, ``target_svd``), or items."""
    begin = ("target", "newpolicy", "evalpolicy", "evaluationpolicy")
    probable = _PROBABILITY | {"p", "pi", "share"} | _PER_CENT
    return [
        name
        for name in known
        if plain_name(name).startswith(begin)
        or (_words(name) & _OF_NEW_POLICIES and (items or _words(name) & probable))
    ]


def _which(role: str, found: Sequence[str]) -> str:
    return f"the {role} could be column {in_words(found)}; {say_which(role)}"


def in_words(found: Sequence[str]) -> str:
    """The first of some columns."""
    return " or ".join(repr(name) for name in found[:4]) + (" or ..." if len(found) > 4 else "")


def say_which(role: str) -> str:
    """Advise where several columns could be meant, or perhaps none."""
    if role in ("propensity", "weight"):
        none = f" ({NONE}: no column is it)"
    else:
        none = ""
    return f"say which with {option_of(role)}{none}"


_WITHOUT = {
    "propensity": ". It is the probability with which the row's item was shown. If it was not logged, name "
    "the items shown (--action-column) and omit --require: it is then estimated"
}
"""What to do without a column, by role."""


def _missing(source: str, role: str, known: Sequence[str], taken: Sequence[tuple[str, str]]) -> str:
    if any(re.fullmatch(r"[-+]?[0-9][-+0-9.,:eE]*", name) for name in known):
        return f"{source}: no header line, it seems: put one with the columns' names first"
    free = [name for name in known if name not in dict(taken).values()]
    for other, name in taken:
        if _recognised(role, [name])[0]:
            return f"{source}: column {name!r} is taken as the {other}: name another one with {option_of(role)}"
    close = [name for name in free if role in name.lower()] or similar_columns(role, free)
    if close:
        hint = f"did you mean {close[0]!r}? "
    else:
        hint = f"columns: {', '.join(known)}; "
    without = _WITHOUT.get(role, "")
    return f"{source}: no column is recognised as the {role}; {hint}name it with {option_of(role)}{without}"


def similar_columns(role: str, known: Iterable[str]) -> list[str]:
    """Columns whose names are almost usual ones of a role: ``propensty``."""
    usual = [name for tier in USUAL_NAMES[role] for name in tier if len(name) > 4]
    return [name for name in known if difflib.get_close_matches(plain_name(name), usual, 1, 0.85)]


def _refuse_twice(source: str, names: Mapping[str, str]) -> None:
    chosen = list(names.values())
    for name in chosen:
        if chosen.count(name) > 1:
            roles = " and ".join(role for role, other in names.items() if other == name)
            raise UserError(f"{source}: column {name!r} is named as {roles}; it can be one of them only")
