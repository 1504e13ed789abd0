"""What has changed between two versions of named facts, such as options or parameters: one line for each. Pure."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from sparktrain.errors import SpecError
from sparktrain.search.space_json import node_texts

_LONGEST = 120
"""Longer lists are shown by what they have gained and lost."""
_MOST_VALUES = 12


def changed_facts(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """`name: old -> new`, `- name: old` where the new ones lack it, `+ name: new` where the old ones do.

    Of nested facts the name is a path, such as `gang.workers`; None counts as absent.
    """
    return _changed(_texts(old, ""), _texts(new, ""))


def changed_space(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str] | None:
    """The parameters of two stored spaces, as a call writes them: `lr: loguniform(1e-05, 0.1) -> [0.01, 0.1]`.

    None where one of them has no parameters by name: it lists whole cases, or is of a newer version.
    """
    try:
        old_texts = node_texts(dict(old))
        now = node_texts(dict(new))
    except (SpecError, KeyError, TypeError, ValueError, AttributeError):
        return None
    if bool(old_texts) != bool(old["values"]) or bool(now) != bool(new["values"]):
        return None
    kinds = (old["kind"], new["kind"])
    combined = [f"combined as: {' -> '.join(kinds)}"] if kinds[0] != kinds[1] and "sampled" not in kinds else []
    return [*combined, *_changed(old_texts, now)]


def _changed(old_texts: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    lines = []
    for name in dict.fromkeys((*old_texts, *now)):
        if name not in now:
            lines.append(f"- {name}: {old_texts[name]}")
        elif name not in old_texts:
            lines.append(f"+ {name}: {now[name]}")
        elif old_texts[name] != now[name]:
            lines.append(f"{name}: {_between(old_texts[name], now[name])}")
    return lines


def _between(old_text: str, now: str) -> str:
    """Both values; of long lists, what the new one has gained and lost."""
    if max(len(old_text), len(now)) > _LONGEST and old_text.startswith("[") and now.startswith("["):
        lists = [Counter(json.dumps(value) for value in json.loads(text)) for text in (old_text, now)]
        parts = [
            f"{sign} {', '.join(values[:_MOST_VALUES])}{' ...' if len(values) > _MOST_VALUES else ''}"
            for sign, values in (("-", list(lists[0] - lists[1])), ("+", list(lists[1] - lists[0])))
            if values
        ]
        return f"{lists[0].total()} values -> {lists[1].total()} values: {'; '.join(parts) or 'in another order'}"
    return f"{old_text} -> {now}"


def _texts(facts: Mapping[str, Any], prefix: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping) and value:
            texts |= _texts(value, f"{prefix}{name}.")
        elif value is not None:
            texts[f"{prefix}{name}"] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return texts
