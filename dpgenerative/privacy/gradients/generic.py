"""The rule of layers that have none."""

from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap

from dpgenerative.privacy.gradients.core import (
    LayerGradients,
    Tensors,
    as_tuple,
    register_rule,
)


@register_rule(nn.Module)
class GenericGradients(LayerGradients):
    """Any layer that treats its examples apart, through `torch.func`.

    The layer is run again, one example at a time, as a function of its parameters, and
    the gradient at its output is pulled back: right for whatever autograd can
    differentiate, and the slowest rule.
    """

    chunk_size = 64

    def of_call(self, inputs: Tensors, grads: Tensors) -> list[Tensor]:
        params = dict(self.module.named_parameters(recurse=False))
        if not len(inputs[0]):  # `vmap` takes no empty axis.
            return [p.detach().new_zeros((0, *p.shape)) for p in params.values()]
        frozen = {name: p.detach() for name, p in params.items()}

        def pull_back(x: Tensors, e: Tensors) -> list[Tensor]:
            def run(values: dict[str, Tensor]) -> Tensors:
                args = tuple(v.unsqueeze(0) for v in x)
                out = functional_call(self.module, values, args)
                return tuple(v.squeeze(0) for v in as_tuple(out))

            pulled = vjp(run, frozen)[1](e)[0]
            return [pulled[name] for name in params]

        pull_all = vmap(pull_back, chunk_size=self.chunk_size)
        pulled: list[Tensor] = pull_all(inputs, grads)
        return pulled
