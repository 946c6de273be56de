"""Appending tokens to a tensor (B, G, N, D) without copying the N that are there, wherever nobody can tell.

`torch.cat` copies the whole cache for every token. Here tokens are written into spare memory behind the tensor. The
result is that of `cat`: it is a new tensor, and the old one still holds what it held, also where it has been copied,
cropped, reordered or continued twice. With gradients, while compiling and while exporting it *is* `cat`.

Memory is token after token, (B, N, G, D), which lets decoding read all heads of a token in one product.
"""

import torch
from torch import Tensor

_SPARE = 128  # tokens of room that a full buffer grows by


class Room:
    """Spare memory behind the tensor that was returned last. Only that very tensor may be continued in it."""

    def __init__(self, held: Tensor, new: Tensor) -> None:
        B, G, N, D = held.shape
        self.buffer = held.new_empty(B, N + new.shape[2] + _SPARE, G, D)
        self.buffer[:, :N] = held.transpose(1, 2)
        self.end = N  # tokens of the buffer that are filled
        self.newest = held  # the tensor whose last token is the last one filled

    def fits(self, held: Tensor, new: Tensor) -> bool:
        return (
            self.newest is held
            and self.end + new.shape[2] <= self.buffer.shape[1]
            and self.buffer.is_inference() == torch.is_inference_mode_enabled()  # else torch refuses the write
        )

    def append(self, held: Tensor, new: Tensor) -> Tensor:
        start, self.end = self.end - held.shape[2], self.end + new.shape[2]
        self.buffer[:, self.end - new.shape[2] : self.end] = new.transpose(1, 2)
        self.newest = self.buffer[:, start : self.end].transpose(1, 2)
        return self.newest


def extended(held: Tensor, new: Tensor, room: Room | None) -> tuple[Tensor, Room | None]:
    """held (B, G, N, D) followed by new (B, G, Nq, D), and the room behind the result, for the next call."""
    alike = held.dtype == new.dtype and held.shape[:2] == new.shape[:2] and held.shape[3] == new.shape[3]
    if not alike or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return torch.cat((held.transpose(1, 2), new.transpose(1, 2)), dim=1).transpose(1, 2), None
    if room is None or not room.fits(held, new):
        room = Room(held, new)
    return room.append(held, new), room


def kept(tensor: Tensor, tokens: int, room: Room | None) -> Tensor:
    """The last `tokens` of it, to be continued. The memory of the others is given back before long."""
    if tokens == tensor.shape[2]:
        return tensor
    part = tensor[:, :, tensor.shape[2] - tokens :]
    if room is None or room.newest is not tensor:
        return part.clone() if not torch.compiler.is_compiling() else part  # a slice would keep all of it alive
    room.newest = part
    return part
