// Block RAM behind an AXI4 port, with a second way in for words of 32 bits: the memory of boards that have no other.
//
// The AXI4 port takes INCR bursts of full beats, one read and one write at a time, a beat per cycle each. Addresses beyond the end are
// answered with an error, up to 16 MiB. The second way takes turns that the port leaves free. Strobes are looked at by words of 32 bits, which
// is the smallest element of the engine (hw/abi.toml, layouts).

`default_nettype none

// Bursts are of full beats and of type INCR, as the engine's are.
/* verilator lint_off UNUSEDSIGNAL */

module onchip_memory #(
    // Logarithm of the size in bytes: 12 to 20.
    parameter SIZE_LOG2 = 18,
    // Bits of the AXI4 port: 64 or 128.
    parameter DATA_W = 64,
    // Bits of an AXI id.
    parameter AXI_ID_W = 8
) (
    input  wire                clk,
    input  wire                rst,

    input  wire [AXI_ID_W-1:0] s_axi_arid,
    input  wire [63:0]         s_axi_araddr,
    input  wire [7:0]          s_axi_arlen,
    input  wire                s_axi_arvalid,
    output wire                s_axi_arready,
    output wire [AXI_ID_W-1:0] s_axi_rid,
    output wire [DATA_W-1:0]   s_axi_rdata,
    output wire [1:0]          s_axi_rresp,
    output wire                s_axi_rlast,
    output wire                s_axi_rvalid,
    input  wire                s_axi_rready,
    input  wire [AXI_ID_W-1:0] s_axi_awid,
    input  wire [63:0]         s_axi_awaddr,
    input  wire                s_axi_awvalid,
    output wire                s_axi_awready,
    input  wire [DATA_W-1:0]   s_axi_wdata,
    input  wire [DATA_W/8-1:0] s_axi_wstrb,
    input  wire                s_axi_wlast,
    input  wire                s_axi_wvalid,
    output wire                s_axi_wready,
    output wire [AXI_ID_W-1:0] s_axi_bid,
    output wire [1:0]          s_axi_bresp,
    output wire                s_axi_bvalid,
    input  wire                s_axi_bready,

    // The second way: hold `link_valid` until `link_ready`, with which a word that was read comes.
    input  wire                link_valid,
    input  wire                link_write,
    input  wire [SIZE_LOG2-3:0] link_word,
    input  wire [31:0]         link_wdata,
    output wire                link_ready,
    output wire [31:0]         link_rdata
);

    localparam LANES = DATA_W / 32;
    localparam LANE_W = $clog2(LANES);
    localparam PLACE_W = SIZE_LOG2 - 2 - LANE_W;
    // Bits of an address that are looked at: of those above nothing is built, in the engine either.
    localparam SEEN_W = 24;

    param_check #(.OK(SIZE_LOG2 >= 12 && SIZE_LOG2 <= 20), .MESSAGE("SIZE_LOG2 must be 12 to 20")) size_check ();
    param_check #(.OK(DATA_W == 64 || DATA_W == 128), .MESSAGE("DATA_W must be 64 or 128")) data_check ();

    // ---- Reads.

    reg [AXI_ID_W-1:0] r_id_reg;
    reg [PLACE_W-1:0] r_place_reg;
    reg [7:0] r_left_reg;
    reg r_active_reg, r_fault_reg, r_valid_reg, r_last_reg;
    reg link_read_reg;
    reg [LANE_W-1:0] link_lane_reg;
    wire [DATA_W-1:0] fetched;

    wire r_give = r_active_reg && (!r_valid_reg || s_axi_rready);
    wire link_reads = link_valid && !link_write && !r_give && !r_valid_reg && !link_read_reg;

    wire [PLACE_W-1:0] r_place = r_give ? r_place_reg : link_word[SIZE_LOG2-3:LANE_W];

    always @(posedge clk) begin
        link_read_reg <= link_reads;
        link_lane_reg <= link_word[LANE_W-1:0];
        if (s_axi_rready) r_valid_reg <= 1'b0;
        if (r_give) begin
            r_valid_reg <= 1'b1;
            r_last_reg <= r_left_reg == 8'd0;
            r_place_reg <= r_place_reg + 1'b1;
            r_left_reg <= r_left_reg - 1'b1;
            if (r_left_reg == 8'd0) r_active_reg <= 1'b0;
        end
        // The next burst begins when the last beat of this one is gone, since its id and fault go with every beat.
        if (s_axi_arvalid && s_axi_arready) begin
            r_active_reg <= 1'b1;
            r_id_reg <= s_axi_arid;
            r_place_reg <= s_axi_araddr[SIZE_LOG2-1:LANE_W+2];
            r_left_reg <= s_axi_arlen;
            r_fault_reg <= |s_axi_araddr[SEEN_W-1:SIZE_LOG2];
        end
        if (rst) begin
            r_active_reg <= 1'b0;
            r_valid_reg <= 1'b0;
            link_read_reg <= 1'b0;
        end
    end

    assign s_axi_arready = !r_active_reg && !r_valid_reg;
    assign s_axi_rid = r_id_reg;
    assign s_axi_rdata = fetched;
    assign s_axi_rresp = {r_fault_reg, 1'b0};
    assign s_axi_rlast = r_last_reg;
    assign s_axi_rvalid = r_valid_reg;

    // ---- Writes.

    reg [AXI_ID_W-1:0] w_id_reg;
    reg [PLACE_W-1:0] w_place_reg;
    reg w_active_reg, w_fault_reg, b_valid_reg;

    wire w_take = w_active_reg && s_axi_wvalid;
    wire link_writes = link_valid && link_write && !w_take;
    wire [PLACE_W-1:0] w_place = w_take ? w_place_reg : link_word[SIZE_LOG2-3:LANE_W];

    // ---- The cells: a block of RAM for each word of a beat.

    genvar k;
    generate
        for (k = 0; k < LANES; k = k + 1) begin : lane
            localparam [31:0] NUMBER = k;
            // Nobody reads a place while it is written: the engine's runs and the host's transfers are apart.
            (* no_rw_check *) reg [31:0] cells [0:(1<<PLACE_W)-1];
            reg [31:0] read_reg;
            wire put = w_take ? s_axi_wstrb[4*k] && !w_fault_reg : link_writes && link_word[LANE_W-1:0] == NUMBER[LANE_W-1:0];

            always @(posedge clk) begin
                if (put) cells[w_place] <= w_take ? s_axi_wdata[32*k +: 32] : link_wdata;
                if (r_give || link_reads) read_reg <= cells[r_place];
            end

            assign fetched[32*k +: 32] = read_reg;
        end
    endgenerate

    always @(posedge clk) begin
        if (s_axi_bready) b_valid_reg <= 1'b0;
        if (w_take) begin
            w_place_reg <= w_place_reg + 1'b1;
            if (s_axi_wlast) begin
                w_active_reg <= 1'b0;
                b_valid_reg <= 1'b1;
            end
        end
        if (s_axi_awvalid && s_axi_awready) begin
            w_active_reg <= 1'b1;
            w_id_reg <= s_axi_awid;
            w_place_reg <= s_axi_awaddr[SIZE_LOG2-1:LANE_W+2];
            w_fault_reg <= |s_axi_awaddr[SEEN_W-1:SIZE_LOG2];
        end
        if (rst) begin
            w_active_reg <= 1'b0;
            b_valid_reg <= 1'b0;
        end
    end

    assign s_axi_awready = !w_active_reg && !b_valid_reg;
    assign s_axi_wready = w_active_reg;
    assign s_axi_bid = w_id_reg;
    assign s_axi_bresp = {w_fault_reg, 1'b0};
    assign s_axi_bvalid = b_valid_reg;

    assign link_ready = link_writes || link_read_reg;
    assign link_rdata = fetched[32*link_lane_reg +: 32];

endmodule

/* verilator lint_on UNUSEDSIGNAL */

`default_nettype wire
