// Every proof begins with one cycle of reset and has no other; registers have arbitrary values before it.

`default_nettype none

module reset_first (
    input wire clk,
    input wire rst
);

    reg begun_reg = 1'b0;

    always @(posedge clk) begun_reg <= 1'b1;

    always @* assume (rst == !begun_reg);

endmodule

`default_nettype wire
