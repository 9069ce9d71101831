// Sends bytes over a serial line: one start bit, eight bits, lowest first, one stop bit, no parity.

`default_nettype none

module uart_tx #(
    // Clocks per bit: 4 to 65535.
    parameter DIVISOR = 25
) (
    input  wire       clk,
    input  wire       rst,
    input  wire [7:0] data,
    input  wire       valid,
    output wire       ready,
    output wire       tx
);

    param_check #(.OK(DIVISOR >= 4 && DIVISOR <= 65535), .MESSAGE("DIVISOR must be 4 to 65535")) divisor_check ();

    localparam [15:0] WHOLE = DIVISOR - 1;

    // What is still to be sent, inverted, the bit on the line lowest: a line at rest is high from the first moment on.
    reg [9:0] shift_reg;
    reg [3:0] left_reg;
    reg [15:0] count_reg;

    assign ready = left_reg == 4'd0;
    assign tx = !shift_reg[0];

    always @(posedge clk) begin
        count_reg <= count_reg - 1'b1;
        if (left_reg == 4'd0) begin
            count_reg <= WHOLE;
            if (valid) begin
                shift_reg <= ~{1'b1, data, 1'b0};
                left_reg <= 4'd10;
            end
        end else if (count_reg == 16'd0) begin
            count_reg <= WHOLE;
            shift_reg <= {1'b0, shift_reg[9:1]};
            left_reg <= left_reg - 1'b1;
        end
        if (rst) begin
            shift_reg <= 10'd0;
            left_reg <= 4'd0;
        end
    end

endmodule

`default_nettype wire
