// Replaces hw/rtl/param_check.sv in proofs, whose keys and ids have fewer bits than hw/rtl allows.

`default_nettype none

module param_check #(
    parameter OK = 1,
    parameter MESSAGE = ""
) ();

endmodule

`default_nettype wire
