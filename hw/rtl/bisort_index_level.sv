// One level of bisort_partitioner's search: a memory of 2**LEVEL samples and one comparison per cycle (PanJoin, III-D and IV).
//
// In a binary search over 2**DEPTH_LOG2 samples, step LEVEL can only meet 2**LEVEL of them: those whose number has its lowest set
// bit at DEPTH_LOG2-1-LEVEL. Each level keeps just these, so that all steps of the search run at the same time, each for another bound.
// Two cycles: read, compare. Nothing stands still here: what comes in goes out.
//
// Samples are written W at a time. The lower levels get several samples of one beat, and have as many banks.

`default_nettype none

module bisort_index_level #(
    // Bits of a key: 32 or 64.
    parameter KEY_W = 64,
    // Samples per written beat: 1, 2, 4, 8 or 16.
    parameter W = 4,
    // Logarithm of the whole index's depth: log2 W + 1 to 20.
    parameter DEPTH_LOG2 = 16,
    // Which step of the search: 0 to DEPTH_LOG2 - 1.
    parameter LEVEL = 0,
    // Bits that travel with a bound and are not looked at: 1 or more.
    parameter TAG_W = 2
) (
    input  wire                        clk,
    input  wire                        rst,

    // This level's bit of the last sample's number. Samples beyond that one count as larger than every bound.
    input  wire                        last_bit,
    // A level stores only its share of the beats.
    /* verilator lint_off UNUSEDSIGNAL */
    input  wire [W*KEY_W-1:0]          write_data,
    input  wire [DEPTH_LOG2-1:0]       write_beat,
    /* verilator lint_on UNUSEDSIGNAL */
    input  wire                        write,

    // The largest sample number known to be before the bound; lower bits than this level's are 0.
    input  wire [DEPTH_LOG2-1:0]       in_partition,
    // Its bits above this level's are those of the last sample: what lies beyond is known by one bit per level.
    input  wire                        in_edge,
    input  wire [KEY_W-1:0]            in_bound,
    // It is an upper one: count equal samples as before it, too.
    input  wire                        in_upper,
    input  wire [TAG_W-1:0]            in_tag,
    input  wire                        in_valid,

    output wire [DEPTH_LOG2-1:0]       out_partition,
    output wire                        out_edge,
    output wire [KEY_W-1:0]            out_bound,
    output wire                        out_upper,
    output wire [TAG_W-1:0]            out_tag,
    output wire                        out_valid
);

    localparam LANES_LOG2 = $clog2(W);
    // This level's samples have numbers with the lowest set bit here.
    localparam BIT = DEPTH_LOG2 - 1 - LEVEL;
    localparam BANKS = BIT < LANES_LOG2 ? W >> (BIT + 1) : 1;
    localparam BANKS_LOG2 = $clog2(BANKS);
    // A row holds this level's samples of one beat, or one sample of every few beats.
    localparam ROWS_LOG2 = LEVEL - BANKS_LOG2;
    localparam READ_SHIFT = BIT < LANES_LOG2 ? LANES_LOG2 : BIT + 1;
    localparam WRITE_SHIFT = READ_SHIFT - LANES_LOG2;
    localparam [DEPTH_LOG2-1:0] STRIDE = 1 << BIT;

    param_check #(.OK(KEY_W == 32 || KEY_W == 64), .MESSAGE("KEY_W must be 32 or 64")) key_check ();
    param_check #(.OK(W == 1 || W == 2 || W == 4 || W == 8 || W == 16), .MESSAGE("W must be 1, 2, 4, 8 or 16")) lanes_check ();
    param_check #(.OK(LEVEL >= 0 && LEVEL < DEPTH_LOG2), .MESSAGE("LEVEL must be below DEPTH_LOG2")) level_check ();

    reg [DEPTH_LOG2-1:0] read_partition_reg, partition_reg;
    reg [KEY_W-1:0] read_bound_reg, bound_reg;
    reg [TAG_W-1:0] read_tag_reg, tag_reg;
    reg read_edge_reg, edge_reg;
    reg read_upper_reg, upper_reg;
    reg read_valid_reg, valid_reg;

    wire write_here;
    wire [BANKS*KEY_W-1:0] row;
    wire [KEY_W-1:0] sample;

    genvar bank;
    generate
        if (BIT < LANES_LOG2) begin : many
            assign write_here = write;
        end else begin : one
            localparam BEAT_BIT = BIT - LANES_LOG2;
            localparam [DEPTH_LOG2-1:0] MASK = (2 << BEAT_BIT) - 1;
            localparam [DEPTH_LOG2-1:0] MINE = 1 << BEAT_BIT;

            assign write_here = write && (write_beat & MASK) == MINE;
        end

        for (bank = 0; bank < BANKS; bank = bank + 1) begin : store
            localparam LANE = BIT < LANES_LOG2 ? (2 * bank + 1) << BIT : 0;
            wire [KEY_W-1:0] word = write_data[LANE*KEY_W +: KEY_W];

            if (ROWS_LOG2 == 0) begin : single
                reg [KEY_W-1:0] word_reg, read_reg;

                assign row[bank*KEY_W +: KEY_W] = read_reg;
                always @(posedge clk) begin
                    if (write_here) word_reg <= word;
                    if (in_valid) read_reg <= word_reg;
                end
            end else begin : several
                reg [KEY_W-1:0] words [0:(1<<ROWS_LOG2)-1];
                reg [KEY_W-1:0] read_reg;
                wire [ROWS_LOG2-1:0] write_row = write_beat[WRITE_SHIFT +: ROWS_LOG2];
                wire [ROWS_LOG2-1:0] read_row = in_partition[READ_SHIFT +: ROWS_LOG2];

                assign row[bank*KEY_W +: KEY_W] = read_reg;
                always @(posedge clk) begin
                    if (write_here) words[write_row] <= word;
                    if (in_valid) read_reg <= words[read_row];
                end
            end
        end

        if (BANKS == 1) begin : plain
            assign sample = row;
        end else begin : choose
            assign sample = row[read_partition_reg[BIT+1 +: BANKS_LOG2]*KEY_W +: KEY_W];
        end
    endgenerate

    // The added bit makes one comparison serve both directions: below the bound, or not above it.
    wire exists = !read_edge_reg || last_bit;
    wire precedes = exists && {sample, 1'b0} < {read_bound_reg, read_upper_reg};

    assign out_partition = partition_reg;
    assign out_edge = edge_reg;
    assign out_bound = bound_reg;
    assign out_upper = upper_reg;
    assign out_tag = tag_reg;
    assign out_valid = valid_reg;

    always @(posedge clk) begin
        if (in_valid) begin
            read_partition_reg <= in_partition;
            read_bound_reg <= in_bound;
            read_upper_reg <= in_upper;
            read_tag_reg <= in_tag;
            read_edge_reg <= in_edge;
        end
        if (read_valid_reg) begin
            partition_reg <= precedes ? read_partition_reg | STRIDE : read_partition_reg;
            edge_reg <= read_edge_reg && precedes == last_bit;
            bound_reg <= read_bound_reg;
            upper_reg <= read_upper_reg;
            tag_reg <= read_tag_reg;
        end
        read_valid_reg <= in_valid && !rst;
        valid_reg <= read_valid_reg && !rst;
    end

endmodule

`default_nettype wire
