"""Appending tokens to a tensor (B, G, N, D) without copying the N that it holds, wherever the result is the same.

`torch.cat` copies the whole cache for every token. Here tokens are written into spare memory after the tensor. The
result equals that of `cat`: a new tensor is returned and the old one keeps its contents. This also holds for tensors
that have been copied, cropped, reordered or continued twice. With gradients, while compiling and while exporting, `cat`
itself is used.

The memory layout is token-major, (B, N, G, D), so that decoding reads all heads of a token in one matrix product.
"""

import torch
from torch import Tensor

_SPARE = 128  # spare tokens allocated when a buffer is full


class Room:
    """Spare memory after the tensor that was returned last. Only that tensor object may be continued in it."""

    def __init__(self, held: Tensor, new: Tensor) -> None:
        B, G, N, D = held.shape
        self.buffer = held.new_empty(B, N + new.shape[2] + _SPARE, G, D)
        self.buffer[:, :N] = held.transpose(1, 2)
        self.end = N  # number of tokens filled in the buffer
        self.newest = held  # the tensor that ends at the last filled token

    def fits(self, held: Tensor, new: Tensor) -> bool:
        return (
            self.newest is held
            and self.end + new.shape[2] <= self.buffer.shape[1]
            and self.buffer.is_inference() == torch.is_inference_mode_enabled()  # otherwise torch refuses the write
        )

    def append(self, held: Tensor, new: Tensor) -> Tensor:
        start, self.end = self.end - held.shape[2], self.end + new.shape[2]
        self.buffer[:, self.end - new.shape[2] : self.end] = new.transpose(1, 2)
        self.newest = self.buffer[:, start : self.end].transpose(1, 2)
        return self.newest


def extended(held: Tensor, new: Tensor, room: Room | None) -> tuple[Tensor, Room | None]:
    """held (B, G, N, D) followed by new (B, G, Nq, D), and the room after the result, for the next call."""
    alike = held.dtype == new.dtype and held.shape[:2] == new.shape[:2] and held.shape[3] == new.shape[3]
    if not alike or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return torch.cat((held.transpose(1, 2), new.transpose(1, 2)), dim=1).transpose(1, 2), None
    if room is None or not room.fits(held, new):
        room = Room(held, new)
    return room.append(held, new), room


def kept(tensor: Tensor, tokens: int, room: Room | None) -> Tensor:
    """The last `tokens` tokens, to be continued. The others' memory is freed at the latest by the next reallocation."""
    if tokens == tensor.shape[2]:
        return tensor
    part = tensor[:, :, tensor.shape[2] - tokens :]
    if room is None or room.newest is not tensor:
        return part.clone() if not torch.compiler.is_compiling() else part  # a slice would keep all of it in memory
    room.newest = part
    return part
