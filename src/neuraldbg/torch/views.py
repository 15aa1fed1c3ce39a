"""Gradients of outputs that are views and may be changed in place later.

Autograd rewrites the history of a view that is changed in place: a hook that sat on the
view before is then part of no graph any more, and never fires. What reaches the view's base
still passes through the base's own history, as it was before the change.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


class ViewGradient:
    """Asks for the gradient of a view, of itself or else of its base.

    Args:
        value: A view that requires a gradient.
        send: Receives the gradient with respect to the view as it is now.
    """

    def __init__(self, value: Tensor, send: Callable[[Tensor], None]) -> None:
        self._send = send
        self._arrived = False
        value.register_hook(self._of_view)
        base = value._base
        if base is None or not base.requires_grad or base.is_leaf:
            return
        self._whole = base.size(), base.stride()
        offset = value.storage_offset() - base.storage_offset()
        self._part = value.size(), value.stride(), offset
        # Shares the count of changes with the view, and none of its history.
        self._shadow = value.detach()
        self._version = value._version
        base.register_hook(self._of_base)

    def _of_view(self, gradient: Tensor) -> None:
        self._arrived = True
        self._send(gradient)

    def _of_base(self, gradient: Tensor) -> None:
        """The base's gradient comes after the view's own, if that comes at all."""
        if self._arrived or self._shadow._version == self._version:
            return
        whole = gradient.new_empty_strided(*self._whole).copy_(gradient)
        self._send(whole.as_strided(*self._part))
