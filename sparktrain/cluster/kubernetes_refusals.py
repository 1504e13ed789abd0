"""Why Kubernetes' API server creates nothing for an application, by the error that it gives Spark. Pure."""

import re

from msgspec import Struct

from sparktrain.cluster.kubernetes_pods import short

_REFUSED = re.compile(
    r"POST at: \S+/(?:pods|configmaps)\. Message: (?P<message>.*?)\. Received status: Status\(.*?\bcode=(?P<code>\d+)",
    re.DOTALL,
)
"""In the message of Spark's client for Kubernetes."""
_FINAL = frozenset({400, 401, 403, 404, 422})
_TEMPLATE = "spark.kubernetes.executor.podTemplateFile"
_CORRECT = f"correct the settings spark.kubernetes.executor.*, or the template in {_TEMPLATE}"
_QUOTA = r"exceeded quota: (?P<quota>\S+), (?P<sizes>.+)"
_EXPLANATIONS = (
    (
        _QUOTA,
        r"quota \g<quota> of their namespace has no room (\g<sizes>)",
        "lower spark.executor.instances or what an executor requests, or have the quota raised",
    ),
    (
        r'User "(?P<user>[^"]+)" cannot (?P<verb>\w+) resource "(?P<what>\w+)" .* in the namespace "(?P<where>[^"]+)"',
        r"\g<user> may not \g<verb> \g<what> in namespace \g<where>",
        "apply conf/kubernetes/role.yaml there, or use an account that may (spark.kubernetes.authenticate.*)",
    ),
    (
        r"create new content in namespace (?P<where>\S+) because it is being terminated",
        r"namespace \g<where> is being deleted",
        "use another one (spark.kubernetes.namespace)",
    ),
    (
        r"violates PodSecurity (?P<rules>.+)",
        r"the Pod Security of their namespace forbids them (\g<rules>)",
        f"name a template like conf/kubernetes/executor.yaml in {_TEMPLATE}",
    ),
    (
        r"(?P<hook>admission webhook \"\S+\"|ValidatingAdmissionPolicy '\S+') .*?denied (?:the )?request: (?P<why>.+)",
        r"\g<hook> denies them (\g<why>)",
        _CORRECT,
    ),
    (
        r"failed calling webhook \"(?P<hook>\S+)\": (?P<why>.+)",
        r'admission webhook "\g<hook>" fails (\g<why>)',
        "ask who operates it",
    ),
    (r"^Unauthorized$", "the driver's token is not valid, or no longer", "renew it (spark.kubernetes.authenticate.*)"),
    (
        r"^(?:Pod|pods) \"\S+\" is (?P<kind>invalid|forbidden): (?P<why>.+)",
        r"they are \g<kind> (\g<why>)",
        _CORRECT,
    ),
    (r"(?P<why>.*)", r"\g<why>", _CORRECT),
)


class PodRefusal(Struct, frozen=True):
    """An attempt of Spark's to create a pod, or the settings that pods mount."""

    text: str
    """The reason and the next step, in one line that is the same for each pod."""
    final: bool
    """Another attempt would fail too, until a person changes something."""


def refusal(logged: str) -> PodRefusal | None:
    """The newest refusal in errors that Spark logs or raises; None where there is none."""
    *_, newest = [None, *_REFUSED.finditer(logged)]
    if newest is None:
        return None
    message = newest["message"]
    final = int(newest["code"]) in _FINAL and re.search(_QUOTA, message) is None
    return PodRefusal(": ".join(explained(message)), final)


def explained(message: str) -> tuple[str, str]:
    """Why the API server refuses pods, by the message of its answer, and the next step."""
    line = short(message)
    explanations = ((re.search(pattern, line), reason, step) for pattern, reason, step in _EXPLANATIONS)
    return next((match.expand(reason), step) for match, reason, step in explanations if match is not None)
