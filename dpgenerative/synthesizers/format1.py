"""Files of format 1, translated into what format 2 says of the same synthesizer.

They hold parameters without groups, and networks with all their attributes. The sizes
of the model are read from these, since rules of parameters that are "auto" may change.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dpgenerative.fitting.fit import finite
from dpgenerative.fitting.options import BatchTerm, Optimizer, Sparsified
from dpgenerative.fitting.recipe import Scale
from dpgenerative.persistence.manifest import SavedNetwork
from dpgenerative.persistence.rebuild import Bounded
from dpgenerative.synthesizers.base import Synthesizer

_RENAMED = {
    "architecture": "networks",
    "latent_law": "latent_distribution",
    "pixel_std": "std",
    "pixel_range": "value_range",
}
"""Parameters that have other names now."""

State = Mapping[str, Mapping[str, Any]]


def class_name(kind: str, state: State) -> str:
    """Return the name that the class has now: arrays are apart from tables."""
    is_array = state["parameters"].get("image_shape") is not None
    return "DPArrayVAESynthesizer" if is_array else kind


def translated(cls: type[Synthesizer], state: State) -> dict[str, dict[str, Any]]:
    """Return the parts that a file of format 2 of the same synthesizer has."""
    fitted = dict(state["fitted"])
    network = fitted.pop("_model")
    parameters = _parameters(cls, state["parameters"])
    tensors = network.tensors()
    learned = network.plain.get("law", network.plain.get("latent_distribution"))
    with Bounded(tensors.values()):
        settings = _settings(cls(**parameters), fitted, network)
    return {
        "parameters": parameters,
        "fitted": fitted,
        "settings": settings,
        "learned": {} if learned is None else {"latent_distribution": learned},
        "tensors": tensors,
    }


def _parameters(cls: type[Synthesizer], held: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters in groups."""
    old = {_RENAMED.get(name, name): value for name, value in held.items()}
    secure, seeded = old.pop("secure", False), old.pop("reproducible")
    old["noise"] = "secure" if secure else "reproducible" if seeded else "fresh"
    share = old.pop("sparsity")
    if old["clipping"] == "sparsified":
        old["clipping"] = Sparsified(share)
    old["optimizer"] = Optimizer(
        old["optimizer"], old.pop("learning_rate"), old.pop("averaging")
    )
    old["divergence"] = BatchTerm(
        old["divergence"], old.pop("alpha", 1.0), old.pop("clip_batch"),
        old.pop("aggregation", "term-wise"),
    )  # fmt: skip
    group = cls._groups["architecture"]
    shape = {f.name: old.pop(f.name) for f in fields(group) if f.name in old}
    known = cls().get_params(deep=False)
    new = {name: value for name, value in old.items() if name in known}
    return {**new, "architecture": group(**shape)}


def _settings(
    synthesizer: Synthesizer, fitted: Mapping[str, Any], network: SavedNetwork
) -> dict[str, Any]:
    """Return the settings of the model, with the sizes of the networks held."""
    transformer, plan = fitted["_transformer"], fitted["privacy_"].plan
    tensors = network.tensors()
    facts: Any = synthesizer._domain_class.facts(transformer)
    scale = Scale(plan.n_rows, transformer.schema, finite(synthesizer.epsilon))
    settings = synthesizer._recipe.settings(facts, scale)
    plain = network.plain
    settings.update({k: plain[k] for k in settings if k in plain})
    if "ordered_only" in settings:  # no rule of that time left columns out
        settings["ordered_only"] = False
    for hidden in ("encoder.hidden.bias", "splines.hidden.bias"):
        if hidden in tensors:
            settings["hidden_units"] = len(tensors[hidden])
    cells = network.children.get("first", network.children.get("cells"))
    if cells is not None:
        if plain.get("anchored"):
            settings["hidden_units"] = cells.plain["hidden_units"]
        # A column that is not smooth has an indicator for every cell.
        columns = zip(cells.plain["widths"], cells.plain["smooth"], facts, strict=True)
        settings["n_basis"] = [
            width - len(each.special) if smooth else len(each.masses)
            for width, smooth, each in columns
        ]
    return settings
