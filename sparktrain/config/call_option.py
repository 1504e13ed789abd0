"""Defines options, and derives names, values, signatures and docstrings from a class of options."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from textwrap import fill
from types import UnionType
from typing import Any, ClassVar, TypeVar, Union, cast, dataclass_transform, get_args, get_origin

from msgspec import Struct

from sparktrain.config.option_rules import ValueRule
from sparktrain.config.panels import RUN
from sparktrain.config.param_values import described, did_you_mean, native
from sparktrain.errors import SpecError

_PLACEHOLDER = re.compile(r"^( *)\*\*options: .*(?:\n\1 +.*)*", re.MULTILINE)
_WIDTH = 116

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K", bound="Keywords")
T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Keywords:
    """Checked options of a call: a frozen dataclass with a field for each `option`, those of its last base first."""

    refusals: ClassVar[Mapping[str, str]] = {}
    """Options of other calls alone, by name, and what to do in place of them."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


class CallOption(Struct, frozen=True, kw_only=True):
    """One option of a call."""

    doc: str
    """A sentence about its effect."""
    rule: ValueRule[Any]
    default: Any = None
    default_text: str = ""
    """The default in words, where its value is not clear."""
    panel: str = RUN
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
    required: bool = False
    """Whether callers must pass it."""
    also: tuple[str, ...] = ()
    """Names in other tools: the error for an unknown option of such a name suggests this one."""

    @property
    def default_words(self) -> str:
        """The default for people; empty where there is none to show."""
        return self.default_text or ("" if self.default is None or self.default is False else str(self.default))


def option(doc: str, rule: ValueRule[T], **attributes: Any) -> T:
    """A field of `Keywords`, with the type of the rule's values; `attributes` are those of `CallOption`."""
    metadata = {"option": CallOption(doc=doc, rule=rule, **attributes)}
    return cast(T, field(repr=False, metadata=metadata))  # its value may be a secret


class Declared(Struct, frozen=True):
    """An option of one class."""

    name: str
    option: CallOption
    value_type: Any
    """The type of its checked values."""

    @property
    def type(self) -> Any:
        """The type of what callers may pass."""
        takes = self.option.rule.takes
        return self.value_type if takes is None else takes | None if self._may_be_none else takes

    @property
    def _may_be_none(self) -> bool:
        return type(None) in get_args(self.value_type)

    @property
    def flag(self) -> str | None:
        """Its flag on the command line."""
        flag = self.option.flag
        return f"--{self.name.replace('_', '-')}" if flag == "" else flag

    def checked(self, value: Any, subject: str = "") -> Any:
        """Check and convert `value`. Raises SpecError with value, rule, next step, and the option's doc."""
        if value is None and self._may_be_none:
            return None
        with self._documented():
            if value is None and self.option.required:
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


def options_in(keywords: type[Keywords]) -> dict[str, Declared]:
    """The options of a class by name: required ones first, then the others in order."""
    options = [Declared(entry.name, entry.metadata["option"], entry.type) for entry in fields(cast(Any, keywords))]
    return {declared.name: declared for declared in sorted(options, key=lambda declared: not declared.option.required)}


def settled(
    keywords: type[K], options: Mapping[str, Any], call: str = "the call", accepted: type[Keywords] | None = None
) -> K:
    """Every option of `keywords`: the checked value, or the default.

    `accepted` has the options that the call takes, where these are fewer, or more of them required. Raises SpecError
    for an unknown option, a missing one, and a value that breaks its rule.
    """
    specs = options_in(accepted or keywords)
    for name in options:
        if name not in specs:
            if reason := (accepted or keywords).refusals.get(name):
                raise SpecError(f"{name}={options[name]!r:.100} with {call}: {reason}")
            near = nearest(name, specs.values()) or ";"
            raise SpecError(f"{call} has no option {name!r}{near} its options are {', '.join(specs)}")
    for name, declared in specs.items():
        if declared.option.required and name not in options:
            raise SpecError(f"{call} lacks {name}: pass {name}= ({declared.option.doc.rstrip('.')})")
    declared_options = options_in(keywords) | specs
    return keywords(
        **{name: spec.checked(options.get(name, spec.option.default)) for name, spec in declared_options.items()}
    )


def part(kind: type[K], keywords: Keywords) -> K:
    """The options of `keywords` that `kind`, one of its bases, has."""
    return kind(**{name: getattr(keywords, name) for name in options_in(kind)})


def nearest(name: str, options: Iterable[Declared], others: Iterable[str] = ()) -> str:
    """`"; did you mean 'metric'?"` with the nearest of `options` and `others`; empty when none is near."""
    declared = list(options)
    for candidate in declared:
        if name in candidate.option.also:
            return f"; did you mean {candidate.name!r}?"
    return did_you_mean(name, [*(option.name for option in declared), *others])


def documented_by(keywords: type[Keywords]) -> Callable[[F], F]:
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
    default = inspect.Parameter.empty if declared.option.required else declared.option.default
    return inspect.Parameter(declared.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=declared.type)


def _lines(options: Iterable[Declared], indent: str) -> Iterable[str]:
    for spec in options:
        default = (
            "" if spec.option.required or not spec.option.default_words else f"Default: {spec.option.default_words}."
        )
        words = " ".join(filter(None, [f"{spec.name}: {spec.option.doc}", default, spec.option.details]))
        yield fill(words, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    ")


def source_of(hint: Any) -> str:
    """A type as source code, without the names of modules.

    >>> source_of(int | None), source_of(list[Any] | str)
    ('int | None', 'list[Any] | str')
    """
    if get_origin(hint) in (Union, UnionType):
        return " | ".join(dict.fromkeys(map(source_of, get_args(hint))))
    text = "None" if hint is type(None) else hint.__name__ if isinstance(hint, type) else str(hint)
    return re.sub(r"\b[a-z_]+\.(?:[a-z_]+\.)*", "", text)
