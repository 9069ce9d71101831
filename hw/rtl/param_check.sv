// Stops elaboration when a parameter is out of its limits, with a message that names the instance.
//
// With Verilator and Yosys that is while they elaborate; Icarus 11 knows no elaboration tasks and stops at time 0 instead.

`default_nettype none

module param_check #(
    // Whether the parameters are allowed.
    parameter OK = 1,
    // What is allowed, said to whoever broke it.
    parameter MESSAGE = "parameter out of its limits"
) ();

    generate
        if (!OK) begin : stop
`ifdef __ICARUS__
            initial begin
                $display("error: %m: %0s", MESSAGE);
                $finish_and_return(1);
            end
`else
            $error("%m: %s", MESSAGE);
`endif
        end
    endgenerate

endmodule

`default_nettype wire
