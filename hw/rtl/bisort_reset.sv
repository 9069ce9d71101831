// A soft reset that keeps the rules of AXI4: no further burst begins, those under way end, then everything but the registers is reset.
//
// A memory that never answers holds the reset up for ever, which `resetting` shows; only the reset wire helps then.

`default_nettype none

module bisort_reset (
    input  wire clk,
    input  wire rst,

    // Begin a reset; asking again while one is under way changes nothing.
    input  wire request,
    // All bursts that were begun have been answered.
    input  wire idle,

    // Begin no further burst.
    output wire hold,
    // Reset: two cycles, or as long as `rst`.
    output wire core_rst,
    output wire resetting
);

    reg hold_reg, reset_reg;

    always @(posedge clk) begin
        if (reset_reg) hold_reg <= 1'b0;
        else if (request) hold_reg <= 1'b1;
        reset_reg <= hold_reg && idle;
        if (rst) begin
            hold_reg <= 1'b0;
            reset_reg <= 1'b0;
        end
    end

    assign hold = hold_reg;
    assign core_rst = rst || reset_reg;
    assign resetting = hold_reg || reset_reg;

endmodule

`default_nettype wire
