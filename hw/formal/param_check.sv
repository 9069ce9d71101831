// Stands in for hw/rtl/param_check.sv in proofs, whose keys and ids have fewer bits than a build may have.

`default_nettype none

module param_check #(
    parameter OK = 1,
    parameter MESSAGE = ""
) ();

endmodule

`default_nettype wire
