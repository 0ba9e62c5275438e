"""Find the columns of a file by role: by the names of this package's logs, by usual names, or as the user says."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from recsim_mnar.errors import UserError, nearest

NAMED, RECOGNISED, OWN_SCHEMA, GUESSED = "named", "recognised", "own schema", "guessed"
"""How a column was found: named by the user, by a usual name, by its name in our logs, or by words in its name."""

_ITEMS = (
    "item",
    "itemid iid movieid productid product parentasin articleid article newsid trackid songid "
    "artistid bookid isbn businessid gameid videoid sku skuid productcode itemcode offerid bannerid adid creativeid "
    "documentid docid contentid artikel artikelid artikelnr artikelnummer produkt produktid produktnr produktnummer",
    "itemidx itemindex asin",
)

_VARIANTS = ("variant", "abgroup", "experimentgroup")
"""Names of a logger's column that may also hold what an A/B test showed."""

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
            " ".join(_VARIANTS),
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
"""Names by which a column is recognised, by role: tiers, best first; two columns of one tier are ambiguous.

In lower case, letters and digits only. The first tier is the name in our own logs.
"""

_USUAL = {role: {name for tier in tiers for name in tier} for role, tiers in USUAL_NAMES.items()}
"""All usual names by role."""

_ENDINGS = {"item": ("sku",), "action": ("sku",), "time": ("at", "ts", "timestamp", "datetime")}
"""Last words of longer names by which a column is recognised if none has a usual name of the first two tiers."""

_PERSONS, _THINGS, _OUTCOMES, _AMOUNTS, _NUMBERS, _SHOWN = (
    frozenset(words.split())
    for words in (
        "user customer cust client member visitor shopper buyer subscriber player reviewer person account kunde kunden "
        "nutzer mitglied",
        "item sku product prod article artikel produkt offer banner creative asin",
        "order orders ordered click clicks clicked buy bought purchase purchased convert converted conversion sale "
        "sold success bestellt bestellung gekauft klick geklickt",
        "revenue turnover amount sales gmv umsatz betrag erloes bestellwert warenwert",
        "id ids no nr num number nummer key code",
        "shown show displayed served recommended exposed gezeigt",
    )
)
"""Words in names of users; of items; of outcomes; of amounts of money; of numbers; of what was shown."""
_BY_WORDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "user": (_PERSONS, _NUMBERS),
    "item": (_THINGS, _NUMBERS | _SHOWN),
    "action": (_THINGS, _NUMBERS | _SHOWN),
    "reward": (_OUTCOMES, frozenset()),
}
"""By role, words of which a name has one, and words of which it has another: ``CustomerNo``, ``SKU shown``."""

_PROBABILITY, _OF_SHOWING, _FILLERS, _OF_NEW_POLICIES = (
    frozenset(words.split())
    for words in (
        "prob probs probability probabilities propensity propensities pscore",
        "show shown showing exposure exposed expose display displayed impression serve served serving log logged "
        "logging logger behavior behaviour select selected selection choose chosen choice sample sampled sampling draw "
        "drawn assign assigned assignment action arm item treatment variant variation bandit recommendation "
        "recommended rec old current today production prod",
        "of the a is was being to for at",
        "new target candidate challenger proposed eval evaluation",
    )
)
"""Words in names of probabilities; of the action shown; of anything; of new policies."""
_OF_SLATES = {
    "conditional": frozenset(["conditional", "cond", "given", "above"]),
    "slate": frozenset(["slate", "list", "ranking", "page", "whole", "joint"]),
    "set": frozenset(["set", "unordered", "combination"]),
    "marginal": frozenset(["marginal", "position", "slot", "place"]),
}
"""Words in names, by the event that a probability is of in a log of slates."""
_PER_CENT = frozenset({"pct", "percent", "percentage"})
"""Words in names of numbers in per cent."""
_PROBABLE = _PROBABILITY | {"p", "pi"} | _PER_CENT
"""Words in names of columns that may be probabilities if further words agree."""
NONE = "none"
"""Text in place of a column's name: the file has no column of this role, whatever its columns are called."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
"""Pattern of a word in a name such as ``customerNo2``, ``SKU_shown`` or ``item id``."""

_PERHAPS_SEVERAL = ("cookieid", "cookie", "deviceid", "sessionid", "session")
"""Names of user columns of which one person may have several values."""
_ORDER = ("reward", "propensity", "user", "item", "action", "logger", "time", "event", "weight")
_RECBOLE_TYPE = re.compile(r":(token|float|token_seq|float_seq)$")


def option_of(role: str) -> str:
    """Return the command-line option that names the column of a role."""
    return f"--{role}-column"


def plain_name(name: str) -> str:
    """Normalise a column's name as in :data:`USUAL_NAMES`: lower case, letters and digits, no RecBole type."""
    return re.sub(r"[^a-z0-9]", "", _RECBOLE_TYPE.sub("", name).lower())


@dataclass(frozen=True)
class Columns:
    """Columns of a file by role.

    Attributes:
        names: column by role, for the roles that have one.
        how: for each of these roles :data:`NAMED`, :data:`RECOGNISED`, :data:`OWN_SCHEMA` or :data:`GUESSED`.
        unclear: candidates by role, for ambiguous roles, which have no column.
        without: roles for which the file has no column, as the user states.
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
        """Return the column of a role, None if it has none."""
        return self.names.get(role)

    def _with_variant_as_action(self) -> Columns:
        """Return the columns with the variant of an A/B test as the action, not the logger, if there is no action.

        A column that the user named as the logger stays the logger.
        """
        name = self.get("logger") or ""
        has_action = "action" in {*self.names, *self.unclear, *self.without}
        if has_action or self.how.get("logger") == NAMED or plain_name(name) not in _VARIANTS:
            return self
        names = {"action" if role == "logger" else role: column for role, column in self.names.items()}
        how = {"action" if role == "logger" else role: word for role, word in self.how.items()}
        return Columns(_ordered(names), how, self.unclear, self.without)

    def with_action(self, chosen: str, how: str, rivals: tuple[str, ...]) -> Columns:
        """Return the columns with another action, or none, as their values tell.

        Args:
            chosen: column of the action; "" without a choice.
            how: how it was found, such as :data:`RECOGNISED`.
            rivals: without a choice, the candidates; the action is then ambiguous. Empty if the values tell nothing.
        """
        if not (chosen or rivals):
            return self._with_variant_as_action()
        away = {chosen, *rivals}  # columns that lose their roles as action or item
        roles = ("action", "item")
        names = {role: name for role, name in self.names.items() if role not in roles or name not in away}
        unclear = {role: known for role, known in self.unclear.items() if role not in roles or not away & {*known}}
        unclear.pop("action", None)
        how_of = dict(self.how)
        if chosen:
            names["action"] = chosen
            if chosen != self.get("action") or how_of["action"] == NAMED:  # by the caller, not by the user
                how_of["action"] = how
        else:
            unclear["action"] = rivals
        names = _ordered(names)
        return Columns(names, {role: how_of[role] for role in names}, unclear, self.without)

    @property
    def guessed(self) -> bool:
        """True if a column was recognised by another name than in our own logs."""
        return RECOGNISED in self.how.values() or GUESSED in self.how.values()

    def line(self) -> str:
        """Format the columns by role: ``reward: clicks; propensity: pscore; user: kunde (named)``."""
        marks = {NAMED: " (named)", GUESSED: " (guessed)", RECOGNISED: "", OWN_SCHEMA: ""}
        return "; ".join(f"{role}: {name}{marks[self.how[role]]}" for role, name in self.names.items())

    def refuse_unclear(self, source: str, *roles: str) -> None:
        """Raise UserError if one of these roles, or without any named any role, is ambiguous.

        Raises:
            UserError: the message has the candidates and the option.
        """
        for role in roles or self.unclear:
            if role in self.unclear:
                raise UserError(f"{source}: {_which(role, self.unclear[role])}", code="unclear_column")

    def lines(self) -> list[str]:
        """Describe the columns: one line for all roles, then a doubtful user column, then each ambiguous role."""
        lines = [self.line()]
        user = self.names.get("user", "")
        if self.how.get("user") == RECOGNISED and plain_name(user) in _PERHAPS_SEVERAL:
            lines.append(
                f"{user} is taken for the user: if one person has several of them, intervals are too narrow; "
                f"{option_of('user')} names the column of persons"
            )
        return lines + [f"no {role} taken: {_which(role, names)}" for role, names in self.unclear.items()]


def _ordered(names: Mapping[str, str]) -> dict[str, str]:
    """Sort columns by role in the order of :data:`_ORDER`, with further roles last."""
    order = sorted(names, key=lambda role: _ORDER.index(role) if role in _ORDER else len(_ORDER))
    return {role: names[role] for role in order}


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

    A column that the user names comes first, then the name in our own logs (``reward``), then usual names in tiers,
    then, for probabilities, names with words for the action shown (``shown_prob``); another name with a word for a
    probability (``click_prob``) is a candidate only. For users and items, names with the right words (``CustomerNo``,
    ``SKU shown``) are used if there is no usual name. A column has one role; roles are served in the order of
    ``needed`` and ``optional``.

    Args:
        source: name of the file in messages.
        known: columns of the file.
        named: column by role, as the user states; None for a role to recognise, "none" for a role without a column.
        needed: roles that must have a column.
        optional: roles that may have a column; ambiguous ones are in ``unclear``.
        leave: columns with other uses, such as targets.

    Raises:
        UserError: a named column is missing or named twice, no column for a needed role, or several.
    """
    named = named or {}
    without = tuple(role for role, column in named.items() if column == NONE and NONE not in known)
    names: dict[str, str] = {}
    for role, column in named.items():
        if column is not None and role not in without:
            names[role] = named_column(source, role, column, known)
            _refuse_twice(source, names)
    how = dict.fromkeys(names, NAMED)
    unclear: dict[str, tuple[str, ...]] = {}
    errors: list[str] = []  # one error for all roles
    for role in (*needed, *optional):
        if role in names or (role in without and role not in needed):
            continue
        free = [name for name in known if name not in leave and name not in names.values() and role not in without]
        candidates, way = _recognised(role, free)
        if way:
            names[role] = candidates[0]
            how[role] = way
        elif candidates and role in needed:
            errors.append(f"{source}: {_which(role, candidates)}")
        elif candidates:
            unclear[role] = tuple(candidates)
        elif role in needed:
            errors.append(_missing(source, role, known, [*names.items(), *(("target", name) for name in leave)]))
    if errors:
        repeated = _listed(known)  # listed once
        more = [line.removeprefix(f"{source}: ").replace(repeated, "") for line in errors[1:] if line != errors[0]]
        raise UserError("; ".join([errors[0], *more]), code="unclear_column")
    names = _ordered(names)
    return Columns(names, {role: how[role] for role in names}, unclear, without)


def named_column(source: str, role: str, given: str, known: Sequence[str]) -> str:
    """Return the file's own spelling of a column that the user names.

    Raises:
        UserError: no such column.
    """
    for name in known:
        if given in (name, name.strip(), _RECBOLE_TYPE.sub("", name)):
            return name
    message = f"{source} has no column {given!r}; {nearest(given, known)} ({option_of(role)})"
    raise UserError(message, code="no_such_column")


def _ends_so(role: str, name: str) -> bool:
    """Return whether a name of several words ends with a word of a role: ``viewed_at``, ``item_sku``."""
    words = _word_list(name)
    return len(words) > 1 and words[-1] in _ENDINGS.get(role, ()) and not _OF_NEW_POLICIES & set(words)


def _recognised(role: str, known: Sequence[str]) -> tuple[list[str], str]:
    """Find the column of a role among columns by its name.

    Returns:
        candidates: columns that the role could have; one if it is clear.
        how: :data:`OWN_SCHEMA`, :data:`RECOGNISED` or :data:`GUESSED`; "" if no candidate, or not one, is clear.
    """
    candidates = _best_tier(role, known)
    if not candidates and role == "propensity":
        candidates = [name for name in known if of_what_was_shown(name)]
        if not candidates:
            return [name for name in named_probabilities(known) if not new_policies([name])], ""
    if len(candidates) != 1:
        return candidates, ""
    name = candidates[0]
    if name == USUAL_NAMES[role][0][0]:
        return candidates, OWN_SCHEMA
    if plain_name(name) not in _USUAL[role] and _has_words_of(role, name):
        return candidates, GUESSED
    return candidates, RECOGNISED


def _best_tier(role: str, known: Sequence[str]) -> list[str]:
    """List the columns with a name of the best tier that has any; longer names count as of the second tier."""
    for rank, tier in enumerate(USUAL_NAMES[role]):
        candidates = [name for name in known if plain_name(name) in tier]
        if not candidates and rank == 1:
            candidates = [name for name in known if _ends_so(role, name)]
            candidates = candidates or [name for name in known if _has_words_of(role, name)]
        if candidates:
            return candidates
    return []


def _has_words_of(role: str, name: str) -> bool:
    """Return whether a name has words of a role and of a number, and no others: ``CustomerNo``, ``SKU shown``."""
    if role not in _BY_WORDS:
        return False
    words = _words(name)
    of_role, of_others = _BY_WORDS[role]
    return bool(words & of_role and words & of_others) and words <= of_role | of_others


def likely_columns(role: str, known: Iterable[str]) -> list[str]:
    """List the columns with a word of a role in their names, next to any other words: ``sku_on_tile``."""
    of_role, _ = _BY_WORDS[role]
    return [name for name in known if _words(name) & of_role]


def are_amounts(name: str) -> bool:
    """Return whether a name is of amounts of money, such as ``Umsatz``, which may be rewards."""
    words = _words(name)
    return bool(words & _AMOUNTS) and not words & _NUMBERS


def says_shown(name: str) -> bool:
    """Return whether a name of items says that they were shown: ``shown_item``, ``displayed``, ``arm``."""
    return plain_name(name) in _USUAL["action"] - _USUAL["item"] or bool(_words(name) & _SHOWN)


def _word_list(name: str) -> list[str]:
    """Split a column's name into words in lower case."""
    return [word.lower() for word in _WORD.findall(_RECBOLE_TYPE.sub("", name))]


def _words(name: str) -> set[str]:
    """Return the different words of a column's name in lower case."""
    return set(_word_list(name))


def of_what_was_shown(name: str) -> bool:
    """Return whether a name has words for a probability and for the action shown, and no others."""
    words = _words(name)
    of_what = words - _PROBABLE
    return of_what < words and of_what <= _OF_SHOWING | _FILLERS and not of_what <= _FILLERS


def named_probabilities(known: Iterable[str]) -> list[str]:
    """List the columns with a word for a probability in their names: ``ranker_prob``."""
    return [name for name in known if _words(name) & _PROBABILITY]


def slate_probabilities(known: Iterable[str]) -> dict[str, str]:
    """Map kinds of probability in a log of slates (keys of :data:`_OF_SLATES`) to the first column named so."""
    by_kind: dict[str, str] = {}
    for name in known:
        words = _words(name)
        kinds = [kind for kind, of_it in _OF_SLATES.items() if words & of_it]
        rest = words - _PROBABLE - _OF_SHOWING - _FILLERS
        if len(kinds) == 1 and words & (_PROBABLE - _PER_CENT) and rest <= _OF_SLATES[kinds[0]]:
            by_kind.setdefault(kinds[0], name)
    return by_kind


def new_policies(known: Iterable[str], *, items: bool = False) -> list[str]:
    """List columns named as probabilities of a new policy (``new_prob``, ``target_svd``), or as its items."""
    begin = ("target", "newpolicy", "evalpolicy", "evaluationpolicy")
    policies = []
    for name in known:
        words = _words(name)
        is_new = bool(words & _OF_NEW_POLICIES and (items or words & (_PROBABLE | {"share"})))
        if is_new or plain_name(name).startswith(begin):
            policies.append(name)
    return policies


def _which(role: str, names: Sequence[str]) -> str:
    """Format the message for a role with several candidates."""
    return f"the {role} could be column {in_words(names)}; {say_which(role)}"


def in_words(names: Sequence[str]) -> str:
    """Join the first four of some columns: ``'a' or 'b'``."""
    return " or ".join([*map(repr, names[:4]), *["..."] * (len(names) > 4)])


def say_which(role: str) -> str:
    """Return the advice for an ambiguous role."""
    none = f" ({NONE}: no column is it)" if role in ("propensity", "weight") else ""
    return f"say which with {option_of(role)}{none}"


_WITHOUT = {
    "propensity": ". It is the probability with which the row's item was shown. If it was not logged, name "
    "the items shown (--action-column) and omit --require: it is then estimated"
}
"""Advice on a role without a column."""


def _missing(source: str, role: str, known: Sequence[str], used: Sequence[tuple[str, str]]) -> str:
    """Format the message for a needed role without a column; ``used`` are the roles and columns found."""
    if any(re.fullmatch(r"[-+]?[0-9][-+0-9.,:eE]*", name) for name in known):
        return f"{source}: no header line, it seems: put one with the columns' names first"
    for other, name in used:
        if _best_tier(role, [name]) or (role == "propensity" and of_what_was_shown(name)):
            return f"{source}: column {name!r} is taken as the {other}: name another one with {option_of(role)}"
    free = [name for name in known if name not in dict(used).values()]
    close = [name for name in free if role in name.lower()] or similar_columns(role, free)
    hint = f"did you mean {close[0]!r}? " if close else _listed(known)
    advice = _WITHOUT.get(role, " (recsim-mnar doctor FILE looks for it)")
    return f"{source}: no column is recognised as the {role}; {hint}name it with {option_of(role)}{advice}"


def _listed(known: Sequence[str]) -> str:
    """List the columns that have names, for a message: the index that pandas writes has none."""
    return f"columns: {', '.join(filter(None, known))}; "


def similar_columns(role: str, known: Iterable[str]) -> list[str]:
    """List columns whose names are almost usual ones of a role: ``propensty``."""
    usual = [name for name in _USUAL[role] if len(name) > 4]
    return [name for name in known if difflib.get_close_matches(plain_name(name), usual, 1, 0.85)]


def _refuse_twice(source: str, names: Mapping[str, str]) -> None:
    """Raise UserError for a column that is named for two roles."""
    for name in names.values():
        roles = [role for role, other in names.items() if other == name]
        if len(roles) > 1:
            raise UserError(f"{source}: column {name!r} is named as {' and '.join(roles)}; it can be one of them only")
