// The CRC-32 (the zlib one: reflected, polynomial 0xEDB88320) of a stream's bytes, a whole beat of LANES elements per cycle.
//
// Bytes go in from the lowest one up. CRC-32 is linear and leading zeros do not change a state of zero, so the state is folded into
// the first element and a part beat is moved to the end of the window: one XOR network serves beats of every length.
// Limit: an element has at least 32 bits, because the state must fit into the first one.

`default_nettype none

module crc32_unit #(
    // Bits of an element: 32 or 64.
    parameter ELEM_W = 32,
    // Elements of a beat: 1, 2, 4, 8 or 16. The XOR network grows with LANES * ELEM_W.
    parameter LANES = 4
) (
    input  wire                    clk,
    input  wire                    rst,

    // A beat, lane 0 in the lowest bits; the lanes that count are contiguous from lane 0.
    input  wire [LANES*ELEM_W-1:0] data,
    input  wire [LANES-1:0]        keep,
    input  wire                    valid,
    // With a beat: it is the first of a message.
    input  wire                    first,

    // Of the message so far.
    output wire [31:0]             crc
);

    localparam BITS = LANES * ELEM_W;

    param_check #(.OK(ELEM_W == 32 || ELEM_W == 64), .MESSAGE("ELEM_W must be 32 or 64")) elem_check ();
    param_check #(
        .OK(LANES == 1 || LANES == 2 || LANES == 4 || LANES == 8 || LANES == 16),
        .MESSAGE("LANES must be 1, 2, 4, 8 or 16")
    ) lanes_check ();

    // Row k of the result: which bits of the window reach bit k of the next state.
    function [32*BITS-1:0] all_rows;
        input integer unused;
        integer i, k;
        reg [31:0] column;
        begin
            column = 32'hEDB88320;
            for (i = BITS - 1; i >= 0; i = i - 1) begin
                for (k = 0; k < 32; k = k + 1) all_rows[k*BITS+i] = column[k];
                column = column[0] ? ((column >> 1) ^ 32'hEDB88320) : (column >> 1);
            end
        end
    endfunction

    localparam [32*BITS-1:0] ROWS = all_rows(0);

    function [31:0] next;
        input [31:0] state;
        input [BITS-1:0] bytes;
        input [LANES-1:0] lanes;
        reg [BITS-1:0] window;
        integer i;
        begin
            window = bytes;
            window[31:0] = window[31:0] ^ state;
            for (i = LANES - 1; i > 0; i = i - 1) begin
                if (!lanes[i]) window = window << ELEM_W;
            end
            for (i = 0; i < 32; i = i + 1) next[i] = ^(window & ROWS[i*BITS +: BITS]);
        end
    endfunction

    reg [31:0] state_reg;

    // A function under an if, not a network beside it: simulators then work only when a beat passes.
    always @(posedge clk) begin
        if (valid && keep[0]) state_reg <= next(first ? 32'hFFFFFFFF : state_reg, data, keep);
        else if (valid && first) state_reg <= 32'hFFFFFFFF;
        if (rst) state_reg <= 32'hFFFFFFFF;
    end

    assign crc = ~state_reg;

endmodule

`default_nettype wire
