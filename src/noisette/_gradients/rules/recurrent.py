"""Recurrent layers: steps one after the other, all examples at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from noisette._gradients.grad_forms import GradForm, outer_product
from noisette._gradients.rules.base import Rule, Use
from noisette._gradients.rules.linear import summed
from noisette._gradients.state_guard import StrategyNotApplicable

__all__ = ["Recurrent"]

State = tuple[Tensor, ...]


class Recurrent(Rule):
    """x (B, N, T, in), N and T the other way round unless `batch_first`; any number of layers, one or two directions.

    A step's derivatives are wanted for all steps at once. They arise where numbers from the input come in; where those
    from the state come in somewhere else, the state's bias, written out for all steps, is that place.
    """

    layers = (nn.LSTM, nn.GRU, nn.RNN)

    def fits(self, layer: nn.Module) -> bool:
        """No projections: their weight would be a third kind."""
        return isinstance(layer, nn.RNNBase) and layer.proj_size == 0

    def run(self, layer: nn.RNNBase, use: Use, x: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
        """Every layer and direction in turn."""
        if isinstance(x, PackedSequence):
            raise StrategyNotApplicable("a packed sequence mixes the examples")
        alone, both = x.ndim == 3, 2 if layer.bidirectional else 1
        x = x.unsqueeze(1) if alone else x if layer.batch_first else x.transpose(1, 2)
        count, many = x.shape[:2]
        states = self._states(layer, hx, x, both)
        values, last = x.flatten(0, 1), list[State]()
        for n in range(layer.num_layers):
            made = []
            for back in range(both):
                name = f"l{n}" + ("_reverse" if back else "")
                seen = values.flip(1) if back else values
                out, state = self._direction(layer, use, name, seen, states[n * both + back], count)
                made.append(out.flip(1) if back else out)
                last.append(state)
            values = torch.cat(made, dim=2) if both == 2 else made[0]
            if n + 1 < layer.num_layers and layer.dropout and layer.training:
                values = F.dropout(values, layer.dropout)
        out = torch.unflatten(values, 0, (count, many))
        kinds = (torch.stack(kind, dim=1) for kind in zip(*last, strict=True))
        ends = [torch.unflatten(kind, 0, (count, many)).transpose(1, 2) for kind in kinds]
        if alone:
            out, ends = out.squeeze(1), [end.squeeze(2) for end in ends]
        elif not layer.batch_first:
            out = out.transpose(1, 2)
        return out, tuple(ends) if layer.mode == "LSTM" else ends[0]

    def _states(self, layer: nn.RNNBase, hx: Any, x: Tensor, both: int) -> list[State]:
        """The first state of every layer and direction, each (B * N, H)."""
        kinds, number = 2 if layer.mode == "LSTM" else 1, layer.num_layers * both
        if hx is None:
            zero = x.new_zeros(x.shape[0] * x.shape[1], layer.hidden_size)
            return [(zero,) * kinds] * number
        given = hx if isinstance(hx, tuple) else (hx,)
        # (B, layers, N, H), or without N
        each = [(h.unsqueeze(2) if h.ndim == 3 else h).transpose(1, 2).flatten(0, 1).unbind(1) for h in given]
        return list(zip(*each, strict=True))

    def _direction(
        self, layer: nn.RNNBase, use: Use, name: str, x: Tensor, state: State, count: int
    ) -> tuple[Tensor, State]:
        """X (R, T, in) through one layer in one direction: outputs (R, T, H) and the last state."""
        weight, own, own_bias = use[f"weight_ih_{name}"], use[f"weight_hh_{name}"], None
        bias = use[f"bias_ih_{name}"] if layer.bias else None
        if layer.bias:
            own_bias = use[f"bias_hh_{name}"]
        before: list[Tensor] = []

        def of_input(g: Tensor) -> GradForm:
            return outer_product(x.reshape(count, -1, x.shape[2]), g.reshape(count, -1, g.shape[2]))

        def of_state(g: Tensor) -> GradForm:
            seen = torch.stack(before, dim=1)
            return outer_product(seen.reshape(count, -1, seen.shape[2]), g.reshape(count, -1, g.shape[2]))

        def of_bias(g: Tensor) -> GradForm:
            return summed(g.reshape(count, -1, g.shape[2]))

        inputs: dict[str, Callable[[Tensor], GradForm]] = {f"weight_ih_{name}": of_input}
        states: dict[str, Callable[[Tensor], GradForm]] = {f"weight_hh_{name}": of_state}
        if layer.bias:
            inputs[f"bias_ih_{name}"] = states[f"bias_hh_{name}"] = of_bias
        if layer.mode == "GRU":  # its reset gate comes between
            entering = use.note(F.linear(x, weight, bias), **inputs).unbind(1)
            base = x.new_zeros(own.shape[0]) if own_bias is None else own_bias
            recurring = use.note(base.repeat(*x.shape[:2], 1), **states).unbind(1)
        else:
            total = bias if own_bias is None or bias is None else bias + own_bias
            entering = use.note(F.linear(x, weight, total), **inputs, **states).unbind(1)
            recurring = entering
        step, outs, turned = _STEPS[layer.mode], [], own.T
        for i in range(x.shape[1]):
            before.append(state[0].detach())
            state = step(entering[i], torch.addmm(recurring[i], state[0], turned), state)
            outs.append(state[0])
        return torch.stack(outs, dim=1), state


def _lstm(_: Tensor, gates: Tensor, state: State) -> State:
    i, f, g, o = gates.chunk(4, dim=1)
    c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru(entering: Tensor, recurring: Tensor, state: State) -> State:
    (r, z, n), (own_r, own_z, own_n) = entering.chunk(3, dim=1), recurring.chunk(3, dim=1)
    new = torch.addcmul(n, (r + own_r).sigmoid(), own_n).tanh()
    return (torch.lerp(new, state[0], (z + own_z).sigmoid()),)


def _tanh(_: Tensor, gates: Tensor, state: State) -> State:  # noqa: ARG001
    return (gates.tanh(),)


def _relu(_: Tensor, gates: Tensor, state: State) -> State:  # noqa: ARG001
    return (gates.relu(),)


_STEPS: dict[str, Callable[[Tensor, Tensor, State], State]] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN_TANH": _tanh,
    "RNN_RELU": _relu,
}
