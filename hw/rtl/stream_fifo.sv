// A stream FIFO: first word falls through, one word in and one word out per cycle.
//
// The store is read synchronously into an output register, so large depths become block RAM and small ones distributed RAM.
// A word needs two cycles from input to output. The FIFO holds DEPTH words in the store and one more in the output register;
// `count` counts both, so `count` < DEPTH always means that there is room.

`default_nettype none

module stream_fifo #(
    // Bits of a word: 1 or more. Side bands (keep, last) travel as part of it.
    parameter WIDTH = 32,
    // Words in the store: a power of two, 2 or more.
    parameter DEPTH = 16
) (
    input  wire                   clk,
    input  wire                   rst,

    input  wire [WIDTH-1:0]       s_axis_tdata,
    input  wire                   s_axis_tvalid,
    output wire                   s_axis_tready,

    output wire [WIDTH-1:0]       m_axis_tdata,
    output wire                   m_axis_tvalid,
    input  wire                   m_axis_tready,

    // Words held, 0 to DEPTH + 1.
    output wire [$clog2(DEPTH):0] count
);

    localparam ADDR_W = $clog2(DEPTH);

    param_check #(.OK(WIDTH >= 1), .MESSAGE("WIDTH must be at least 1")) width_check ();
    param_check #(.OK(DEPTH >= 2 && DEPTH == (1 << ADDR_W)), .MESSAGE("DEPTH must be a power of two, at least 2")) depth_check ();

    reg [WIDTH-1:0] store [0:DEPTH-1];

    reg [ADDR_W-1:0] write_reg;
    reg [ADDR_W-1:0] read_reg;
    // Words in the store. It is full when the highest bit is set: a register, because what comes before a FIFO has often far to go with it.
    reg [ADDR_W:0] stored_reg;
    reg [WIDTH-1:0] out_reg;
    reg out_valid_reg;

    wire take = s_axis_tvalid && s_axis_tready;
    wire fetch = stored_reg != 0 && (!out_valid_reg || m_axis_tready);

    assign s_axis_tready = !stored_reg[ADDR_W];
    assign m_axis_tdata = out_reg;
    assign m_axis_tvalid = out_valid_reg;
    assign count = stored_reg + {{ADDR_W{1'b0}}, out_valid_reg};

    always @(posedge clk) begin
        if (take) store[write_reg] <= s_axis_tdata;
        if (fetch) out_reg <= store[read_reg];
    end

    always @(posedge clk) begin
        if (take) write_reg <= write_reg + 1'b1;
        if (fetch) read_reg <= read_reg + 1'b1;
        if (fetch) out_valid_reg <= 1'b1;
        else if (m_axis_tready) out_valid_reg <= 1'b0;
        // One more or, as all bits set, one less.
        if (take != fetch) stored_reg <= stored_reg + {{ADDR_W{fetch}}, 1'b1};
        if (rst) begin
            write_reg <= 0;
            read_reg <= 0;
            stored_reg <= 0;
            out_valid_reg <= 1'b0;
        end
    end

endmodule

`default_nettype wire
