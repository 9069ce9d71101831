// Sums of the transfers through one direction of a memory port: a whole beat per cycle, whichever stream it belongs to.
//
// A sum is the remainder of a transfer's beats modulo the polynomial of CRC-32 (the zlib one, reflected, 0xEDB88320), where words that
// are not the transfer's count as zero: begun with 0, and not inverted. hw/crc.py makes zlib's CRC-32 of it, which needs to know
// where the transfer ends in its last beat; zeros before the first element change nothing. The streams share one XOR network, as one
// beat per cycle comes through a port, and their sums are in one memory by number. A sum is there two cycles after its last beat.

`default_nettype none

module axi_sum #(
    // Bits of the memory port: a power of two, 64 to 1024. The XOR network grows with it.
    parameter DATA_W = 128,
    // Bits of a stream's number: 1 to 8. There is a sum for each number.
    parameter NUMBER_W = 4
) (
    input  wire                clk,
    input  wire                rst,

    // A beat: its stream, its words of 32 bits that count, and whether it is the first of a transfer.
    input  wire [DATA_W-1:0]    data,
    input  wire [DATA_W/32-1:0] keep,
    input  wire [NUMBER_W-1:0]  number,
    input  wire                 first,
    input  wire                 valid,

    // The sum of a stream, while no beat comes.
    input  wire [NUMBER_W-1:0]  asked,
    output wire [31:0]          sum
);

    param_check #(.OK(DATA_W >= 64 && DATA_W <= 1024), .MESSAGE("DATA_W must be 64 to 1024")) data_check ();
    param_check #(.OK(NUMBER_W >= 1 && NUMBER_W <= 8), .MESSAGE("NUMBER_W must be 1 to 8")) number_check ();

    // Row k of the result: which bits of the window reach bit k of the next state.
    function [32*DATA_W-1:0] all_rows;
        input integer unused;
        integer i, b;
        reg [31:0] column;
        begin
            column = 32'hEDB88320;
            for (i = DATA_W - 1; i >= 0; i = i - 1) begin
                for (b = 0; b < 32; b = b + 1) all_rows[b*DATA_W+i] = column[b];
                column = column[0] ? ((column >> 1) ^ 32'hEDB88320) : (column >> 1);
            end
        end
    endfunction

    localparam [32*DATA_W-1:0] ROWS = all_rows(0);

    function [31:0] next;
        input [31:0] prior;
        input [DATA_W-1:0] bytes;
        reg [DATA_W-1:0] window;
        integer i;
        begin
            window = bytes;
            window[31:0] = window[31:0] ^ prior;
            for (i = 0; i < 32; i = i + 1) next[i] = ^(window & ROWS[i*DATA_W +: DATA_W]);
        end
    endfunction

    reg [DATA_W-1:0] data_reg;
    reg [NUMBER_W-1:0] number_reg;
    reg first_reg, valid_reg;
    reg [31:0] sums [0:(1<<NUMBER_W)-1];

    wire [31:0] state = sums[valid_reg ? number_reg : asked];

    genvar k;
    generate
        for (k = 0; k < DATA_W / 32; k = k + 1) begin : word
            always @(posedge clk) begin
                if (valid) data_reg[k*32 +: 32] <= keep[k] ? data[k*32 +: 32] : 32'd0;
            end
        end
    endgenerate

    // A function under an if, not a network beside it: simulators then work only when a beat passes.
    always @(posedge clk) begin
        number_reg <= number;
        first_reg <= first;
        valid_reg <= valid && !rst;
        if (valid_reg) sums[number_reg] <= next(first_reg ? 32'd0 : state, data_reg);
    end

    assign sum = state;

endmodule

`default_nettype wire
