"""A Yosys pass for Intel's ALMs, `alm_load`: maps a multiplexer before a register to the flip-flop's synchronous load.

A flip-flop of an ALM takes SDATA instead of DATAIN while SLOAD is high. Yosys' cell (MISTRAL_FF) has these inputs, but
`synth_intel_alm` leaves them unused and spends a LUT per bit on the multiplexer. DATAIN is the output of the ALM's own
LUT or adder, and SDATA bypasses them. A multiplexer therefore becomes a load only if one of its inputs is the output of
logic that no other load uses. SLOAD is one wire for all ALMs of a LAB, so the pass changes only groups of at least
`GROUP` flip-flops with the same controls. It runs between the labels `map_ffs` and `map_luts`, when flip-flops are
cells and the logic before them is still gates.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyosys import libyosys as ys

GROUP = 8
"""Minimum number of flip-flops that share a load; the ten ALMs of a LAB have one SLOAD wire."""

Bit = tuple[str | None, int | str]
"""A wire and a bit offset in it, or a constant."""
_LOW: Bit = (None, str(ys.State.S0))
_CONTROLS = ("\\CLK", "\\ACLR", "\\ENA", "\\SCLR")


@dataclass(frozen=True)
class _Load:
    """The control signals of a group. `swapped`: a high S selects the logic, so SLOAD is S inverted."""

    controls: tuple[Bit, ...]
    select: Bit
    swapped: bool


class AlmLoad(ys.Pass):  # type: ignore[misc]
    """`alm_load`: use SLOAD of MISTRAL_FF for $_MUX_ cells that feed nothing else."""

    def __init__(self) -> None:
        super().__init__("alm_load", "use the synchronous load of MISTRAL_FF")

    def execute(self, args: Sequence[str], design: Any) -> None:
        """Change all selected modules and log how many multiplexers were removed."""
        ys.log(f"{sum(_change(module) for module in design.selected_modules())} multiplexers are loads now.\n")


def _change(module: Any) -> int:
    """Change the registers of one module; returns the number of removed multiplexers."""
    gone = 0
    for load, group in _groups(module).items():
        if len(group) < GROUP:
            continue
        select = group[0][1].getPort(ys.IdString("\\S"))
        if load.swapped:
            select = _inverted(module, select)
        for register, choice in group:
            data, past = ("\\B", "\\A") if load.swapped else ("\\A", "\\B")
            register.setPort(ys.IdString("\\SLOAD"), select)
            register.setPort(ys.IdString("\\DATAIN"), choice.getPort(ys.IdString(data)))
            register.setPort(ys.IdString("\\SDATA"), choice.getPort(ys.IdString(past)))
            module.remove(choice)
        gone += len(group)
    return gone


def _inverted(module: Any, select: Any) -> Any:
    fresh = ys.SigSpec(module.addWire(module.uniquify(ys.IdString("$alm_load_wire")), 1))
    module.addNotGate(module.uniquify(ys.IdString("$alm_load_cell")), select.as_bit(), fresh.as_bit())
    return fresh


def _groups(module: Any) -> Mapping[_Load, list[tuple[Any, Any]]]:
    """Registers that can load, each with the multiplexer before it, grouped by control signals."""
    uses, logic = Counter(_seen(module)), _logic(module)
    choices = {_bit(cell, "\\Y"): cell for cell in _cells(module, "$_MUX_")}
    groups = defaultdict(list)
    for register in _cells(module, "\\MISTRAL_FF"):
        choice = choices.get(_bit(register, "\\DATAIN"))
        if choice is None or uses[_bit(register, "\\DATAIN")] != 1 or _bit(register, "\\SLOAD") != _LOW:
            continue
        straight, other = _bit(choice, "\\A"), _bit(choice, "\\B")
        if straight in logic or other in logic:
            swapped = straight not in logic
            logic.remove(other if swapped else straight)
            controls = tuple(_bit(register, port) for port in _CONTROLS)
            groups[_Load(controls, _bit(choice, "\\S"), swapped)].append((register, choice))
    return groups


def _logic(module: Any) -> set[Bit]:
    """The output bits of gates and adders."""
    gates = {_bit(cell, "\\Y") for cell in _cells(module, "$_") if cell.hasPort(ys.IdString("\\Y"))}
    adders = _cells(module, "\\MISTRAL_ALUT_ARITH")
    return gates | {_bit(cell, "\\SO") for cell in adders if cell.hasPort(ys.IdString("\\SO"))}


def _seen(module: Any) -> Iterator[Bit]:
    """Every use of every bit; the output of a multiplexer is not a use."""
    for cell in _cells(module):
        for port, signal in dict(cell.connections()).items():
            if (str(cell.type), str(port)) != ("$_MUX_", "\\Y"):
                yield from _bits(signal)
    for _, signal in module.connections():
        yield from _bits(signal)
    for wire in dict(module.wires_).values():
        if wire.port_output:
            yield from ((str(wire.name), offset) for offset in range(wire.width))


def _cells(module: Any, kind: str = "") -> list[Any]:
    """The cells whose type begins with `kind`."""
    return [cell for cell in dict(module.cells_).values() if str(cell.type).startswith(kind)]


def _bit(cell: Any, port: str) -> Bit:
    return next(_bits(cell.getPort(ys.IdString(port))))


def _bits(signal: Any) -> Iterator[Bit]:
    for bit in signal.to_sigbit_vector():
        yield (str(bit.wire.name), bit.offset) if bit.is_wire() else (None, str(bit.data))


ALM_LOAD = AlmLoad()
"""Yosys knows a pass only as long as its object exists."""
