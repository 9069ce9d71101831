"""Generates the hardware description (`.hwh`) of a loopback board: the parts of Vivado's file that pynq reads.

It describes a processing system with one clock, and the engine's registers at an address. Limit: works with pynq's
UltraScale+ parser only.
"""

from __future__ import annotations

from xml.sax.saxutils import quoteattr

from millrace.hw.catalog import Board

CLOCKS = 4
"""The number of clocks that a Zynq UltraScale+ provides to the logic; the first one is used."""


def text(board: Board) -> bytes:
    """The description of a board's block design."""
    base, size, engine = board.pynq["base"], 4096, board.pynq["engine"]
    region = {
        "ADDRESSBLOCK": "reg0",
        "BASENAME": "C_BASEADDR",
        "BASEVALUE": f"0x{base:08X}",
        "HIGHNAME": "C_HIGHADDR",
        "HIGHVALUE": f"0x{base + size - 1:08X}",
        "INSTANCE": engine,
        "IS_DATA": "TRUE",
        "IS_INSTRUCTION": "TRUE",
        "MASTERBUSINTERFACE": "M_AXI_HPM0_FPD",
        "MEMTYPE": "REGISTER",
        "SLAVEBUSINTERFACE": "s_axil",
    }
    body = [
        '<EDKSYSTEM EDWVERSION="1.2" TIMESTAMP="0" VIVADOVERSION="loopback">',
        f' <SYSTEMINFO ARCH="zynquplus" DEVICE={quoteattr(board.part)} NAME="loopback"/>',
        " <EXTERNALPORTS/>",
        " <EXTERNALINTERFACES/>",
        " <MODULES>",
        *_module("zynq_ultra_ps_e_0", "zynq_ultra_ps_e", "PROCESSOR", "xilinx.com:ip:zynq_ultra_ps_e:3.4"),
        *_parameters(_clocks(board.clock_hz / 1e6)),
        *_bus("M_AXI_HPM0_FPD", "MASTER"),
        f"   <MEMORYMAP><MEMRANGE {_attributes(region)}/></MEMORYMAP>",
        "  </MODULE>",
        *_module(engine, "bisort_engine", "PERIPHERAL", "millrace:rtl:bisort_engine:1.0"),
        *_parameters({name: str(value) for name, value in board.parameters.items()}),
        *_bus("s_axil", "SLAVE"),
        "  </MODULE>",
        " </MODULES>",
        "</EDKSYSTEM>",
    ]
    return ("\n".join(body) + "\n").encode()


def _module(name: str, kind: str, role: str, vlnv: str) -> list[str]:
    fields = {
        "COREREVISION": "1",
        "FULLNAME": f"/{name}",
        "HWVERSION": "1.0",
        "INSTANCE": name,
        "IPTYPE": role,
        "IS_ENABLE": "1",
        "MODCLASS": role,
        "MODTYPE": kind,
        "NAME": kind,
        "VLNV": vlnv,
    }
    return [f"  <MODULE {_attributes(fields)}>"]


def _parameters(values: dict[str, str]) -> list[str]:
    rows = [f'    <PARAMETER NAME={quoteattr(name)} VALUE="{value}"/>' for name, value in values.items()]
    return ["   <PARAMETERS>", *rows, "   </PARAMETERS>", "   <PORTS/>"]


def _bus(name: str, role: str) -> list[str]:
    fields = {"NAME": name, "TYPE": role, "VLNV": "xilinx.com:interface:aximm:1.0"}
    return [f"   <BUSINTERFACES><BUSINTERFACE {_attributes(fields)}/></BUSINTERFACES>"]


def _clocks(megahertz: float) -> dict[str, str]:
    values: dict[str, str] = {}
    for number in range(CLOCKS):
        control = f"PSU__CRL_APB__PL{number}_REF_CTRL"
        values |= {
            f"PSU__FPGA_PL{number}_ENABLE": str(int(number == 0)),
            f"{control}__DIVISOR0": str(max(1, round(1500 / megahertz))),
            f"{control}__DIVISOR1": "1",
            f"{control}__SRCSEL": "IOPLL",
            f"{control}__ACT_FREQMHZ": f"{megahertz:g}",
        }
    return values


def _attributes(fields: dict[str, str]) -> str:
    return " ".join(f"{name}={quoteattr(value)}" for name, value in fields.items())
