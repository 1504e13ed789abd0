"""Defines options, and derives names, values, signatures and docstrings from a class of options."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from textwrap import fill
from types import UnionType
from typing import Any, Literal, Required, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from sparktrain.config.option_rules import ValueRule
from sparktrain.config.param_values import described, did_you_mean, native
from sparktrain.errors import SpecError

_PLACEHOLDER = re.compile(r"^( *)\*\*options: .*(?:\n\1 +.*)*", re.MULTILINE)
_WIDTH = 116

F = TypeVar("F", bound=Callable[..., Any])


class CallOption(Struct, frozen=True):
    """One option of a call."""

    doc: str
    """A sentence about its effect."""
    rule: ValueRule
    default: Any = None
    says: str = ""
    """The default in words, where its value is not clear."""
    panel: str = "The run"
    """Panel in the command line's help."""
    flag: str | None = ""
    """Flag on the command line; empty: its name with dashes. None: no flag."""
    flag_doc: str = ""
    """The sentence for the command line, if it differs."""
    in_file: bool = True
    """Whether a parameter file may set it."""
    details: str = ""
    """Further sentences, for docstrings and docs/."""
    page: str = ""
    """The page of docs/ with details."""
    also: tuple[str, ...] = ()
    """Names in other tools: the error for an unknown option of such a name suggests this one."""

    @property
    def default_words(self) -> str:
        """The default for people; empty where there is none to show."""
        return self.says or ("" if self.default is None or self.default is False else str(self.default))


class Declared(Struct, frozen=True):
    """An option of one class, with the data from its annotation."""

    name: str
    option: CallOption
    type: Any
    required: bool

    @property
    def flag(self) -> str | None:
        """Its flag on the command line."""
        flag = self.option.flag
        return f"--{self.name.replace('_', '-')}" if flag == "" else flag

    def checked(self, value: Any, subject: str = "") -> Any:
        """Check and convert `value`. Raises SpecError with value, rule, next step, and the option's doc."""
        if value is None and type(None) in get_args(self.type):
            return None
        with self._documented():
            if value is None and self.required:
                raise SpecError(f"{subject or self.name} is {described(None)}: pass a value")
            return self.option.rule.check(native(value), subject or self.name)

    def read(self, words: Any, subject: str) -> Any:
        """Parse and check the text of a command-line flag. Raises SpecError, as `checked`."""
        with self._documented():
            value = self.option.rule.read(words, subject)
        return self.checked(value, subject)

    @contextmanager
    def _documented(self) -> Iterator[None]:
        """Append the option's doc to a SpecError."""
        try:
            yield
        except SpecError as error:
            raise SpecError(f"{error} ({self.name}: {self.option.doc.rstrip('.')})") from None


@cache
def options_in(keywords: type) -> dict[str, Declared]:
    """The options of a TypedDict by name: required ones first, then the others in order."""
    options = []
    for name, hint in get_type_hints(keywords, include_extras=True).items():
        required = get_origin(hint) is Required
        annotated = get_args(hint)[0] if required else hint
        options.append(Declared(name, annotated.__metadata__[0], get_args(annotated)[0], required))
    return {option.name: option for option in sorted(options, key=lambda spec: not spec.required)}


def settled(keywords: type, options: Mapping[str, Any], call: str = "the call") -> dict[str, Any]:
    """Every option of `keywords`: the given value, checked, or the default.

    Raises SpecError for an unknown option, a missing one, and a value that breaks its rule.
    """
    specs = options_in(keywords)
    for name in options:
        if name not in specs:
            near = nearest(name, specs.values()) or ";"
            raise SpecError(f"{call} has no option {name!r}{near} its options are {', '.join(specs)}")
    for name, declared in specs.items():
        if declared.required and name not in options:
            raise SpecError(f"{call} lacks {name}: pass {name}= ({declared.option.doc.rstrip('.')})")
    return {
        name: spec.checked(options[name]) if name in options else spec.option.default for name, spec in specs.items()
    }


def nearest(name: str, options: Iterable[Declared], others: Iterable[str] = ()) -> str:
    """`"; did you mean 'metric'?"` with the nearest of `options` and `others`; empty when none is near."""
    declared = list(options)
    for candidate in declared:
        if name in candidate.option.also:
            return f"; did you mean {candidate.name!r}?"
    return did_you_mean(name, [*(option.name for option in declared), *others])


def documented_by(keywords: type) -> Callable[[F], F]:
    """Make a function with `**options` show each option in `help()` and in the signature that editors read."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own_params = [param for param in signature.parameters.values() if param.kind is not param.VAR_KEYWORD]
        named = [_parameter(option) for option in options_in(keywords).values()]
        function.__signature__ = signature.replace(parameters=[*own_params, *named])  # type: ignore[attr-defined]
        if function.__doc__ is not None:
            function.__doc__ = _PLACEHOLDER.sub(
                lambda match: "\n".join(_lines(options_in(keywords).values(), match[1])), function.__doc__
            )
        return function

    return decorate


def _parameter(declared: Declared) -> inspect.Parameter:
    default = inspect.Parameter.empty if declared.required else declared.option.default
    return inspect.Parameter(declared.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=declared.type)


def _lines(options: Iterable[Declared], indent: str) -> Iterable[str]:
    for spec in options:
        default = "" if spec.required or not spec.option.default_words else f"Default: {spec.option.default_words}."
        words = " ".join(filter(None, [f"{spec.name}: {spec.option.doc}", default, spec.option.details]))
        yield fill(words, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    ")


def shown_type(hint: Any) -> str:
    """A type as a user writes it, for docs/.

    >>> shown_type(int | None), shown_type(Literal["max", "min"])
    ('int | None', "'max' | 'min'")
    """
    if get_origin(hint) is Literal:
        return " | ".join(map(repr, get_args(hint)))
    if get_origin(hint) in (Union, UnionType):
        return " | ".join(dict.fromkeys(map(shown_type, get_args(hint))))
    text = "None" if hint is type(None) else hint.__name__ if isinstance(hint, type) else str(hint)
    return re.sub(r"\b[a-z_]+\.(?:[a-z_]+\.)*", "", text)
