// No deadlock: `waiting` is never high for more than MOST consecutive cycles.

`default_nettype none

module patience #(
    parameter MOST = 4
) (
    input wire clk,
    input wire rst,
    input wire waiting
);

    reg [5:0] cycles_reg;

    always @(posedge clk) cycles_reg <= rst || !waiting ? 6'd0 : cycles_reg + 6'd1;

    always @* if (!rst) goes_on: assert (cycles_reg <= MOST);

endmodule

`default_nettype wire
