// Where a slot's slices lie in memory: the addresses that go with a start, worked out once for all clusters and pairs.
//
// Starts come one per cycle and leave one cycle later with the addresses of their slices' first elements and, where they are read, of
// their last ones, on wires that all clusters and pairs share. A MERGE or INDEX reads a and b and writes the merged run and its index;
// a PROBE reads its bounds at B_WORDS and B_IDS and writes its positions to OUT_WORDS and OUT_IDS, all from bound `a_first` on. (PanJoin, IV.)

`default_nettype none

// Samples of a slice are fewer than its tuples.
/* verilator lint_off UNUSEDSIGNAL */

module bisort_slicer #(
    // Bits of a key: 32 or 64.
    parameter KEY_W = 64,
    // Bits of a byte address: 16 to 64.
    parameter ADDR_W = 40,
    // Clusters and pairs of probers: 1 to 16 each.
    parameter CLUSTERS = 2,
    parameter PAIRS = 2
) (
    input  wire                clk,
    input  wire                rst,

    // The job.
    input  wire [ADDR_W-1:0]   a_words,
    input  wire [ADDR_W-1:0]   a_ids,
    input  wire [ADDR_W-1:0]   b_words,
    input  wire [ADDR_W-1:0]   b_ids,
    input  wire [ADDR_W-1:0]   out_words,
    input  wire [ADDR_W-1:0]   out_ids,
    input  wire [ADDR_W-1:0]   index,
    input  wire [4:0]          step_log2,

    // A start, one bit at most, and its slices.
    input  wire [CLUSTERS-1:0] s_cluster_start,
    input  wire [PAIRS-1:0]    s_pair_start,
    input  wire [31:0]         s_a_first,
    input  wire [31:0]         s_a_end,
    input  wire [31:0]         s_b_first,
    input  wire [31:0]         s_b_end,

    // The same, one cycle later, with addresses.
    output wire [CLUSTERS-1:0] cluster_start,
    output wire [PAIRS-1:0]    pair_start,
    output wire [ADDR_W-1:0]   a_words_at,
    output wire [ADDR_W-1:0]   a_words_last,
    output wire [ADDR_W-1:0]   a_ids_at,
    output wire [ADDR_W-1:0]   a_ids_last,
    output wire                a_empty,
    output wire [ADDR_W-1:0]   b_words_at,
    output wire [ADDR_W-1:0]   b_words_last,
    output wire [ADDR_W-1:0]   b_ids_at,
    output wire [ADDR_W-1:0]   b_ids_last,
    output wire                b_empty,
    output wire [ADDR_W-1:0]   out_words_at,
    output wire [ADDR_W-1:0]   out_ids_at,
    output wire [ADDR_W-1:0]   index_at,
    // Position of the slice in the merged run.
    output wire [31:0]         out_first
);

    localparam BYTES_LOG2 = $clog2(KEY_W / 8);

    param_check #(.OK(KEY_W == 32 || KEY_W == 64), .MESSAGE("KEY_W must be 32 or 64")) key_check ();

    reg [CLUSTERS-1:0] cluster_start_reg;
    reg [PAIRS-1:0] pair_start_reg;
    reg [ADDR_W-1:0] a_words_reg, a_ids_reg, b_words_reg, b_ids_reg, out_words_reg, out_ids_reg, index_reg;
    reg [ADDR_W-1:0] a_words_last_reg, a_ids_last_reg, b_words_last_reg, b_ids_last_reg;
    reg a_empty_reg, b_empty_reg;
    reg [31:0] out_first_reg;

    wire probing = |s_pair_start;
    wire [31:0] merged_first = s_a_first + s_b_first;

    // Samples before the slice, rounded up.
    wire [31:0] step_mask = (32'd1 << step_log2) - 32'd1;
    wire [32:0] first_up = {1'b0, merged_first} + {1'b0, step_mask};
    wire [32:0] sample_first = first_up >> step_log2;

    function [ADDR_W-1:0] in_words;
        input [32:0] elements;
        reg [63:0] bytes;
        begin
            bytes = {31'd0, elements} << BYTES_LOG2;
            in_words = bytes[ADDR_W-1:0];
        end
    endfunction

    function [ADDR_W-1:0] in_ids;
        input [31:0] elements;
        reg [63:0] bytes;
        begin
            bytes = {30'd0, elements, 2'd0};
            in_ids = bytes[ADDR_W-1:0];
        end
    endfunction

    wire [31:0] b_from = probing ? s_a_first : s_b_first;
    wire [31:0] out_from = probing ? s_a_first : merged_first;
    wire [31:0] a_last = s_a_end - 32'd1;
    wire [31:0] b_last = (probing ? s_a_end : s_b_end) - 32'd1;

    always @(posedge clk) begin
        cluster_start_reg <= s_cluster_start;
        pair_start_reg <= s_pair_start;
        a_words_reg <= a_words + in_words({1'b0, s_a_first});
        a_words_last_reg <= a_words + in_words({1'b0, a_last});
        a_ids_reg <= a_ids + in_ids(s_a_first);
        a_ids_last_reg <= a_ids + in_ids(a_last);
        b_words_reg <= b_words + in_words({1'b0, b_from});
        b_words_last_reg <= b_words + in_words({1'b0, b_last});
        b_ids_reg <= b_ids + (probing ? in_words({1'b0, b_from}) : in_ids(b_from));
        b_ids_last_reg <= b_ids + (probing ? in_words({1'b0, b_last}) : in_ids(b_last));
        out_words_reg <= out_words + (probing ? in_ids(out_from) : in_words({1'b0, out_from}));
        out_ids_reg <= out_ids + in_ids(out_from);
        index_reg <= index + in_words(sample_first);
        a_empty_reg <= s_a_first == s_a_end;
        b_empty_reg <= s_b_first == s_b_end;
        out_first_reg <= merged_first;
        if (rst) begin
            cluster_start_reg <= {CLUSTERS{1'b0}};
            pair_start_reg <= {PAIRS{1'b0}};
        end
    end

    assign cluster_start = cluster_start_reg;
    assign pair_start = pair_start_reg;
    assign a_words_at = a_words_reg;
    assign a_words_last = a_words_last_reg;
    assign a_ids_at = a_ids_reg;
    assign a_ids_last = a_ids_last_reg;
    assign a_empty = a_empty_reg;
    assign b_words_at = b_words_reg;
    assign b_words_last = b_words_last_reg;
    assign b_ids_at = b_ids_reg;
    assign b_ids_last = b_ids_last_reg;
    assign b_empty = b_empty_reg;
    assign out_words_at = out_words_reg;
    assign out_ids_at = out_ids_reg;
    assign index_at = index_reg;
    assign out_first = out_first_reg;

endmodule

/* verilator lint_on UNUSEDSIGNAL */

`default_nettype wire
