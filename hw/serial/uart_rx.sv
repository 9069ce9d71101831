// Receives bytes from a serial line: one start bit, eight bits, lowest first, one stop bit, no parity.
//
// The line goes through two registers, because it is not of our clock. A byte is looked at in the middle of its bits; one whose stop bit
// is low is dropped, and the line must be high again before the next one begins.

`default_nettype none

module uart_rx #(
    // Clocks per bit: 4 to 65535.
    parameter DIVISOR = 25
) (
    input  wire       clk,
    input  wire       rst,
    input  wire       rx,
    // With `valid`, which is high for one cycle.
    output wire [7:0] data,
    output wire       valid
);

    param_check #(.OK(DIVISOR >= 4 && DIVISOR <= 65535), .MESSAGE("DIVISOR must be 4 to 65535")) divisor_check ();

    localparam [15:0] WHOLE = DIVISOR - 1;
    localparam [15:0] HALF = DIVISOR / 2 - 1;

    reg [1:0] sync_reg;
    reg [15:0] count_reg;
    // 0: waits for a start bit; 1: in it; 2 to 9: bits; 10: the stop bit; 11: waits for a line that is high.
    reg [3:0] place_reg;
    reg [7:0] shift_reg;
    reg valid_reg;

    wire line = sync_reg[1];

    always @(posedge clk) begin
        sync_reg <= {sync_reg[0], rx};
        valid_reg <= 1'b0;
        count_reg <= count_reg - 1'b1;
        if (place_reg == 4'd0) begin
            count_reg <= HALF;
            if (!line) place_reg <= 4'd1;
        end else if (place_reg == 4'd11) begin
            if (line) place_reg <= 4'd0;
        end else if (count_reg == 16'd0) begin
            count_reg <= WHOLE;
            place_reg <= place_reg + 1'b1;
            if (place_reg == 4'd1) begin
                if (line) place_reg <= 4'd0;
            end else if (place_reg == 4'd10) begin
                valid_reg <= line;
                place_reg <= line ? 4'd0 : 4'd11;
            end else begin
                shift_reg <= {line, shift_reg[7:1]};
            end
        end
        if (rst) begin
            sync_reg <= 2'b11;
            place_reg <= 4'd11;
            valid_reg <= 1'b0;
        end
    end

    assign data = shift_reg;
    assign valid = valid_reg;

endmodule

`default_nettype wire
