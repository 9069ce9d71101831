// Gives the lower and upper bounds of a batch as two streams, each ascending by itself (PanJoin, IV, "boundary generator").
//
// Mode HOST (band = 0): the host has computed the bounds; s_axis_low and s_axis_high pass by, each on its own.
// Mode BAND (band = 1): s_axis_low carries one ascending stream of keys; each gives the bounds key - below and key + above,
// the former never less than `least`, the latter never more than `most`. Keys are unsigned words in key order, so this is done on words.
// s_axis_high is not read then.
//
// One bound per cycle and stream; two cycles from input to output. In mode BAND both outputs must be drained side by side: if
// one stands still, so will the other. An empty stream is one beat with tkeep = 0 and tlast.
// Limits: band, below, above, least and most are steady while a stream runs; least <= most.

`default_nettype none

module bisort_boundary #(
    // Bits of a key: 32 or 64.
    parameter KEY_W = 64
) (
    input  wire             clk,
    input  wire             rst,

    // Mode BAND rather than HOST.
    input  wire             band,
    input  wire [KEY_W-1:0] below,
    input  wire [KEY_W-1:0] above,
    input  wire [KEY_W-1:0] least,
    input  wire [KEY_W-1:0] most,

    // Mode HOST: the lower bounds. Mode BAND: the keys.
    input  wire [KEY_W-1:0] s_axis_low_tdata,
    input  wire             s_axis_low_tkeep,
    input  wire             s_axis_low_tlast,
    input  wire             s_axis_low_tvalid,
    output wire             s_axis_low_tready,

    input  wire [KEY_W-1:0] s_axis_high_tdata,
    input  wire             s_axis_high_tkeep,
    input  wire             s_axis_high_tlast,
    input  wire             s_axis_high_tvalid,
    output wire             s_axis_high_tready,

    output wire [KEY_W-1:0] m_axis_low_tdata,
    output wire             m_axis_low_tkeep,
    output wire             m_axis_low_tlast,
    output wire             m_axis_low_tvalid,
    input  wire             m_axis_low_tready,

    output wire [KEY_W-1:0] m_axis_high_tdata,
    output wire             m_axis_high_tkeep,
    output wire             m_axis_high_tlast,
    output wire             m_axis_high_tvalid,
    input  wire             m_axis_high_tready
);

    param_check #(.OK(KEY_W == 32 || KEY_W == 64), .MESSAGE("KEY_W must be 32 or 64")) key_check ();

    // First registers: the sums, with the bit that says they left the word. Second registers: the sums held within the limits.
    reg [KEY_W:0] low_sum_reg, high_sum_reg;
    reg [KEY_W-1:0] low_reg, high_reg;
    reg low_sum_keep_reg, low_sum_last_reg, low_sum_valid_reg, low_keep_reg, low_last_reg, low_valid_reg;
    reg high_sum_keep_reg, high_sum_last_reg, high_sum_valid_reg, high_keep_reg, high_last_reg, high_valid_reg;

    wire low_move = !low_valid_reg || m_axis_low_tready;
    wire high_move = !high_valid_reg || m_axis_high_tready;
    wire low_free = !low_sum_valid_reg || low_move;
    wire high_free = !high_sum_valid_reg || high_move;

    assign s_axis_low_tready = low_free && (!band || high_free);
    assign s_axis_high_tready = high_free && !band;

    wire low_take = s_axis_low_tvalid && s_axis_low_tready;
    wire high_take = band ? low_take : s_axis_high_tvalid && s_axis_high_tready;

    wire low_out = low_sum_reg[KEY_W] || low_sum_reg[KEY_W-1:0] < least;
    wire high_out = high_sum_reg[KEY_W] || high_sum_reg[KEY_W-1:0] > most;

    assign m_axis_low_tdata = low_reg;
    assign m_axis_low_tkeep = low_keep_reg;
    assign m_axis_low_tlast = low_last_reg;
    assign m_axis_low_tvalid = low_valid_reg;
    assign m_axis_high_tdata = high_reg;
    assign m_axis_high_tkeep = high_keep_reg;
    assign m_axis_high_tlast = high_last_reg;
    assign m_axis_high_tvalid = high_valid_reg;

    always @(posedge clk) begin
        if (low_free) begin
            low_sum_reg <= {1'b0, s_axis_low_tdata} - (band ? {1'b0, below} : {(KEY_W+1){1'b0}});
            low_sum_keep_reg <= s_axis_low_tkeep;
            low_sum_last_reg <= s_axis_low_tlast;
        end
        if (high_free) begin
            high_sum_reg <= band ? {1'b0, s_axis_low_tdata} + {1'b0, above} : {1'b0, s_axis_high_tdata};
            high_sum_keep_reg <= band ? s_axis_low_tkeep : s_axis_high_tkeep;
            high_sum_last_reg <= band ? s_axis_low_tlast : s_axis_high_tlast;
        end
        if (low_move) begin
            low_reg <= band && low_out ? least : low_sum_reg[KEY_W-1:0];
            low_keep_reg <= low_sum_keep_reg;
            low_last_reg <= low_sum_last_reg;
        end
        if (high_move) begin
            high_reg <= band && high_out ? most : high_sum_reg[KEY_W-1:0];
            high_keep_reg <= high_sum_keep_reg;
            high_last_reg <= high_sum_last_reg;
        end
    end

    always @(posedge clk) begin
        if (low_free) low_sum_valid_reg <= low_take;
        if (high_free) high_sum_valid_reg <= high_take;
        if (low_move) low_valid_reg <= low_sum_valid_reg;
        if (high_move) high_valid_reg <= high_sum_valid_reg;
        if (rst) begin
            low_sum_valid_reg <= 1'b0;
            high_sum_valid_reg <= 1'b0;
            low_valid_reg <= 1'b0;
            high_valid_reg <= 1'b0;
        end
    end

endmodule

`default_nettype wire
