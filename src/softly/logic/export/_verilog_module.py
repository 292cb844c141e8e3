"""A module of Verilog while it is written, and the words that it can't be called."""

from __future__ import annotations

# Of Verilog-2005 and SystemVerilog-2017.
_WORDS = """
accept_on alias always always_comb always_ff always_latch and assert assign assume automatic before begin bind bins
binsof bit break buf bufif0 bufif1 byte case casex casez cell chandle checker class clocking cmos config const
constraint context continue cover covergroup coverpoint cross deassign default defparam design disable dist do edge
else end endcase endchecker endclass endclocking endconfig endfunction endgenerate endgroup endinterface endmodule
endpackage endprimitive endprogram endproperty endsequence endspecify endtable endtask enum event eventually expect
export extends extern final first_match for force foreach forever fork forkjoin function generate genvar global highz0
highz1 if iff ifnone ignore_bins illegal_bins implements implies import incdir include initial inout input inside
instance int integer interconnect interface intersect join join_any join_none large let liblist library local
localparam logic longint macromodule matches medium modport module nand negedge nettype new nexttime nmos nor
noshowcancelled not notif0 notif1 null or output package packed parameter pmos posedge primitive priority program
property protected pull0 pull1 pulldown pullup pulsestyle_ondetect pulsestyle_onevent pure rand randc randcase
randsequence rcmos real realtime ref reg reject_on release repeat restrict return rnmos rpmos rtran rtranif0 rtranif1
s_always s_eventually s_nexttime s_until s_until_with scalared sequence shortint shortreal showcancelled signed small
soft solve specify specparam static string strong strong0 strong1 struct super supply0 supply1 sync_accept_on
sync_reject_on table tagged task this throughout time timeprecision timeunit tran tranif0 tranif1 tri tri0 tri1 triand
trior trireg type typedef union unique unique0 unsigned until until_with untyped use uwire var vectored virtual void
wait wait_order wand weak weak0 weak1 while wildcard wire with within wor xnor xor
"""
KEYWORDS = frozenset(_WORDS.split())


class Module:
    """Lines of a module, and the registers of its one clocked block."""

    def __init__(self, clocked: bool) -> None:
        self.clocked = clocked
        self.lines: list[str] = []
        self.clocks: list[str] = []

    def register(self, name: str, value: str, width: int = 1) -> str:
        """A value one clock later; the name by which it goes then."""
        self.lines.append(f"  reg {declared(width)}{name};")
        self.clocks.append(f"    {name} <= {value};")
        return name

    def wire(self, name: str, value: str, width: int = 1) -> str:
        self.lines.append(f"  wire {declared(width)}{name} = {value};")
        return name

    def step(self, name: str, value: str, width: int = 1) -> str:
        """A value of an operator, after its register where there are any."""
        return self.register(name, value, width) if self.clocked else self.wire(name, value, width)

    def vector(self, name: str, parts: list[str]) -> None:
        """Assign all of a vector, from its lowest bit on: bit by bit takes simulators a hundred times as long."""
        self.lines.append(f"  assign {name} = {{\n    " + ",\n    ".join(reversed(parts)) + "\n  };")

    def source(self, name: str, ports: list[str]) -> str:
        ports = ["input wire clk", *ports] if self.clocked else ports
        block = ["  always @(posedge clk) begin", *self.clocks, "  end"] if self.clocks else []
        head = f"module {name} (\n" + ",\n".join(f"  {port}" for port in ports) + "\n);"
        return "\n".join([head, *self.lines, *block, "endmodule", ""])


def declared(width: int, always: bool = False) -> str:
    """What declares so many bits; ports are vectors even of one."""
    return f"[{width - 1}:0] " if always or width > 1 else ""
