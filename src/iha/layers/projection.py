"""A linear layer applied to tokens, and to one token by our own kernel where nothing but `nn.Linear` is asked for."""

from torch import Tensor, nn

from iha.ops.one_token import matrix_vector


def project(linear: nn.Module, x: Tensor) -> Tensor:
    """linear(x). One token (decoding) is bound by memory, which our kernel reads twice as fast as torch's products."""
    if x.shape[-2] == 1 and x.numel() == x.shape[-1] and _is_untouched(linear):
        assert isinstance(linear, nn.Linear)
        out = matrix_vector(x, linear.weight, linear.bias)
        if out is not None:
            return out
    return linear(x)


def _is_untouched(module: nn.Module) -> bool:
    """Whether calling it is `nn.Linear.forward` and nothing else: no subclass, hook, replaced forward or offloading."""
    return (
        type(module) is nn.Linear
        and not module._forward_pre_hooks
        and not module._forward_hooks
        and "forward" not in module.__dict__
        and "parametrizations" not in module._modules
    )
