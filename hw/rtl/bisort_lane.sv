// One lane of one input of bisort_merger: a short queue of tuples, and in registers its head and the tuple behind it (PanJoin, IV and V-B).
//
// All lanes of an input are filled together, a beat at a time, but each is emptied by its own comparator alone; they differ by
// at most one tuple. After the stream's last beat the lane is at its end: its head is `none`, larger than every tuple, until
// `renew` starts the next merge. Tuples of the next merge may already wait in the queue then.

`default_nettype none

module bisort_lane #(
    // Bits of a key: 1 or more.
    parameter KEY_W = 64,
    // Bits of an id: 1 or more.
    parameter ID_W = 32
) (
    input  wire             clk,
    input  wire             rst,

    // A beat's share for this lane: `push_none` if the (last) beat has no tuple here.
    input  wire [KEY_W-1:0] push_key,
    input  wire [ID_W-1:0]  push_id,
    input  wire             push_none,
    input  wire             push_last,
    input  wire             push,
    output wire             space,

    output wire [KEY_W-1:0] head_key,
    output wire [ID_W-1:0]  head_id,
    output wire             head_none,
    output wire             head_valid,
    input  wire             pop,
    input  wire             renew,
    // The tuple behind the head, if any, and whether it becomes the head at the end of this cycle; `hold` keeps it from that.
    output wire [KEY_W-1:0] next_key,
    output wire [ID_W-1:0]  next_id,
    output wire             load,
    input  wire             hold
);

    param_check #(.OK(KEY_W >= 1 && ID_W >= 1), .MESSAGE("KEY_W and ID_W must be at least 1")) width_check ();

    // Four entries hide the cycle that the merger needs to see a full queue.
    reg [KEY_W-1:0] keys [0:3];
    reg [ID_W-1:0] ids [0:3];
    reg [3:0] nones_reg;
    reg [3:0] lasts_reg;
    reg [2:0] write_reg;
    reg [2:0] read_reg;
    reg [KEY_W-1:0] next_key_reg, key_reg;
    reg [ID_W-1:0] next_id_reg, id_reg;
    reg next_none_reg, none_reg;
    reg next_last_reg, last_reg;
    reg next_valid_reg, valid_reg;

    wire [2:0] queued = write_reg - read_reg;
    wire take = pop && valid_reg && !none_reg;
    wire vacant = !valid_reg || renew || (take && !last_reg);
    wire refill = queued != 0 && (!next_valid_reg || load);

    assign load = vacant && next_valid_reg && !hold;
    assign next_key = next_key_reg;
    assign next_id = next_id_reg;
    assign space = !queued[2];
    assign head_key = key_reg;
    assign head_id = id_reg;
    assign head_none = none_reg;
    assign head_valid = valid_reg;

    always @(posedge clk) begin
        if (push) begin
            keys[write_reg[1:0]] <= push_key;
            ids[write_reg[1:0]] <= push_id;
            nones_reg[write_reg[1:0]] <= push_none;
            lasts_reg[write_reg[1:0]] <= push_last;
        end
        if (refill) begin
            next_key_reg <= keys[read_reg[1:0]];
            next_id_reg <= ids[read_reg[1:0]];
            next_none_reg <= nones_reg[read_reg[1:0]];
            next_last_reg <= lasts_reg[read_reg[1:0]];
        end
        if (load) begin
            key_reg <= next_key_reg;
            id_reg <= next_id_reg;
            last_reg <= next_last_reg;
        end
    end

    always @(posedge clk) begin
        if (push) write_reg <= write_reg + 1'b1;
        if (refill) read_reg <= read_reg + 1'b1;
        if (refill) next_valid_reg <= 1'b1;
        else if (load) next_valid_reg <= 1'b0;
        if (vacant) valid_reg <= load;
        if (vacant) none_reg <= load && next_none_reg;
        else if (take) none_reg <= 1'b1;
        if (rst) begin
            write_reg <= 0;
            read_reg <= 0;
            next_valid_reg <= 1'b0;
            valid_reg <= 1'b0;
            none_reg <= 1'b0;
        end
    end

endmodule

`default_nettype wire
