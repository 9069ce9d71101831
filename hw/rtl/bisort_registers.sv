// The registers of the engine: identity, staged parameters, the command queue, results, and what the counters show.
//
// Registers are those of hw/abi.toml. A write to COMMAND queues the opcode with all parameters as they stand, so the next command may
// be staged while others run. A result waits for each command that has ended, oldest first, until it is dropped by a write to RESULT.
// Limit: a command written while the queue is full is lost, and ERROR says so.

`default_nettype none

// Numbers are small.
/* verilator lint_off UNUSEDSIGNAL */

module bisort_registers #(
    // Bits of a key, bits of an id, tuples per beat, samples on the chip (logarithm): shown in SHAPE.
    parameter KEY_W = 64,
    parameter ID_W = 32,
    parameter W = 4,
    parameter INDEX_LOG2 = 16,
    // Clusters: 1 to 16; pairs of probers: 1 to 16.
    parameter CLUSTERS = 2,
    parameter PAIRS = 2,
    // Bytes of a memory beat and beats of a burst: shown in PORT.
    parameter BEAT_BYTES = 64,
    parameter BURST = 16,
    // Commands that wait behind the one at work, and results that wait: a power of two, 2 to 64; or 1, and then nothing waits: a command
    // is lost unless the one before has ended.
    parameter QUEUE = 4,
    // Shown in BUILD_HASH.
    parameter [63:0] BUILD_HASH = 64'd0,
    // The larger of clusters and pairs.
    localparam SLOTS = PAIRS > CLUSTERS ? PAIRS : CLUSTERS,
    // Words of 32 bits of a command's parameters: 32 fixed ones and two per slot, at most 64.
    localparam PARAMS = 32 + 2 * SLOTS,
    // Bits of a counter's number: at most 8.
    localparam COUNTER_W = $clog2(8 * (CLUSTERS + PAIRS))
) (
    input  wire                       clk,
    input  wire                       rst,

    input  wire                       write,
    input  wire [11:0]                write_addr,
    input  wire [31:0]                write_data,
    // Data one cycle after `read`; the address stands from the cycle before on.
    input  wire [11:0]                read_addr,
    input  wire                       read,
    output wire [31:0]                read_data,
    output wire                       irq,

    // A soft reset is asked for; `flush` then comes with it, and what waits in queues is dropped. Parameters and counters stay.
    output wire                       reset_asked,
    input  wire                       resetting,
    input  wire                       flush,

    // The command at work: {parameters, opcode}. It stays until it has ended.
    output wire [PARAMS*32+7:0]       m_command_tdata,
    output wire                       m_command_tvalid,
    input  wire                       m_command_tready,

    // Results: {cycles, opcode, error code}. The engine ends no command before its result is taken.
    input  wire [47:0]                s_result_tdata,
    input  wire                       s_result_tvalid,
    output wire                       s_result_tready,
    output wire                       results_wait,

    // What is counted elsewhere; 8 counters for each cluster, then for each pair (bisort_counters).
    input  wire                       working,
    input  wire [31:0]                index_rows,
    output wire [COUNTER_W-1:0]       counter_asked,
    input  wire [31:0]                counter,
    // Sums of the clusters' readers and writers: which is asked for, and what each cluster says.
    output wire [7:0]                 sum_asked,
    output wire                       sum_of_writer,
    input  wire [CLUSTERS*32-1:0]     sums
);

    `include "bisort_abi.svh"

    localparam QUEUE_LOG2 = $clog2(QUEUE);
    localparam [31:0] SHAPE = {INDEX_LOG2[7:0], W[7:0], ID_W[7:0], KEY_W[7:0]};
    localparam [31:0] UNITS = {QUEUE[7:0], SLOTS[7:0], PAIRS[7:0], CLUSTERS[7:0]};
    localparam [31:0] PORT = {BURST[15:0], BEAT_BYTES[15:0]};

    param_check #(.OK(CLUSTERS >= 1 && CLUSTERS <= 16), .MESSAGE("CLUSTERS must be 1 to 16")) clusters_check ();
    param_check #(.OK(PAIRS >= 1 && PAIRS <= 16), .MESSAGE("PAIRS must be 1 to 16")) pairs_check ();
    param_check #(.OK(PARAMS <= 64), .MESSAGE("PARAMS must be at most 64")) params_check ();
    param_check #(.OK(COUNTER_W <= 8), .MESSAGE("COUNTER_W must be at most 8")) counter_check ();
    param_check #(
        .OK(QUEUE >= 1 && QUEUE <= 64 && QUEUE == (1 << QUEUE_LOG2)),
        .MESSAGE("QUEUE must be a power of two, 1 to 64")
    ) queue_check ();

    // ---- Parameters, as they are staged.

    reg [PARAMS*32-1:0] params_reg;
    wire param_write = write && write_addr[11:8] == 4'd1;

    // The same once more to be read back, in a memory: registers side by side would need a wide multiplexer. Which were written since reset.
    reg [31:0] copies [0:63];
    reg [63:0] written_reg;
    reg [31:0] copy_reg;
    wire [5:0] param_at = read_addr[7:2];

    always @(posedge clk) begin
        if (param_write) copies[write_addr[7:2]] <= write_data;
        if (read) copy_reg <= copies[param_at];
    end

    always @(posedge clk) begin
        if (param_write) written_reg[write_addr[7:2]] <= 1'b1;
        if (rst) written_reg <= 64'd0;
    end

    genvar k;
    generate
        for (k = 0; k < PARAMS; k = k + 1) begin : param
            localparam [5:0] HERE = k;
            always @(posedge clk) begin
                if (param_write && write_addr[7:2] == HERE) params_reg[k*32 +: 32] <= write_data;
                if (rst) params_reg[k*32 +: 32] <= 32'd0;
            end
        end
    endgenerate

    // ---- Commands and results wait in queues.

    wire command_write = write && write_addr == BISORT_REG_COMMAND[11:0];
    wire command_room;
    wire [7:0] queued;
    wire [47:0] result;
    wire result_waits;
    reg [7:0] number_reg;

    generate
        if (QUEUE > 1) begin : queue
            wire [QUEUE_LOG2:0] held;

            stream_fifo #(
                .WIDTH(PARAMS * 32 + 8),
                .DEPTH(QUEUE)
            ) command_fifo (
                .clk(clk),
                .rst(rst || flush),
                .s_axis_tdata({params_reg, write_data[7:0]}),
                .s_axis_tvalid(command_write),
                .s_axis_tready(command_room),
                .m_axis_tdata(m_command_tdata),
                .m_axis_tvalid(m_command_tvalid),
                .m_axis_tready(m_command_tready),
                .count(held)
            );
            // The one at work does not wait.
            assign queued = {{(7-QUEUE_LOG2){1'b0}}, held} - {7'd0, working};
        end else begin : queue
            reg [PARAMS*32+7:0] command_reg;
            reg valid_reg;

            assign command_room = !valid_reg;
            assign m_command_tdata = command_reg;
            assign m_command_tvalid = valid_reg;
            assign queued = 8'd0;
            always @(posedge clk) begin
                if (command_write && command_room) command_reg <= {params_reg, write_data[7:0]};
                if (m_command_tready) valid_reg <= 1'b0;
                if (command_write && command_room) valid_reg <= 1'b1;
                if (rst || flush) valid_reg <= 1'b0;
            end
        end
    endgenerate

    localparam RESULTS = QUEUE > 1 ? QUEUE : 2;
    wire [$clog2(RESULTS):0] results;

    stream_fifo #(
        .WIDTH(48),
        .DEPTH(RESULTS)
    ) result_fifo (
        .clk(clk),
        .rst(rst || flush),
        .s_axis_tdata(s_result_tdata),
        .s_axis_tvalid(s_result_tvalid),
        .s_axis_tready(s_result_tready),
        .m_axis_tdata(result),
        .m_axis_tvalid(result_waits),
        .m_axis_tready(write && write_addr == BISORT_REG_RESULT[11:0]),
        .count(results)
    );

    assign results_wait = results != 0;

    // ---- Small state.

    reg irq_enable_reg;
    reg [7:0] error_reg;
    reg [31:0] commands_reg;
    reg [63:0] cycles_reg;
    wire ended = s_result_tvalid && s_result_tready;

    always @(posedge clk) begin
        if (working) cycles_reg <= cycles_reg + 64'd1;
        if (write && write_addr == BISORT_REG_IRQ_ENABLE[11:0]) irq_enable_reg <= write_data[0];
        if (write && write_addr == BISORT_REG_ERROR[11:0]) error_reg <= BISORT_ERR_OK[7:0];
        if (write && write_addr == BISORT_REG_RESULT[11:0] && result_waits) number_reg <= number_reg + 8'd1;
        if (ended) begin
            commands_reg <= commands_reg + 32'd1;
            if (s_result_tdata[7:0] != BISORT_ERR_OK[7:0]) error_reg <= s_result_tdata[7:0];
        end
        if (command_write && !command_room) error_reg <= BISORT_ERR_QUEUE_FULL[7:0];
        if (rst) begin
            irq_enable_reg <= 1'b0;
            error_reg <= BISORT_ERR_OK[7:0];
            commands_reg <= 32'd0;
            cycles_reg <= 64'd0;
            number_reg <= 8'd0;
        end
    end

    assign irq = irq_enable_reg && result_waits;
    assign reset_asked = write && write_addr == BISORT_REG_RESET[11:0] && write_data[0];

    // ---- What reads show.

    // A cluster's sums are those of readers 0 to 3 and writers 0 to 2; a pair's are two readers' and two writers' behind them, and
    // the index comes by reader 4 of the first cluster (bisort_cluster).
    wire [31:0] pair = {27'd0, read_addr[10:6]};
    wire [31:0] in_cluster = pair / CLUSTERS;
    wire [31:0] sum_cluster = read_addr[11] ? pair % CLUSTERS : read_addr[10] ? {28'd0, read_addr[9:6]} : 32'd0;
    wire [31:0] pair_reader = 32'd5 + 2 * in_cluster + {31'd0, read_addr[2]};
    wire [31:0] pair_writer = 32'd3 + 2 * in_cluster + {31'd0, read_addr[2]};
    wire [31:0] pair_number = read_addr[3] ? pair_writer : pair_reader;

    assign sum_of_writer = read_addr[11] ? read_addr[3] : read_addr[10] && read_addr[4];
    assign sum_asked = read_addr[11] ? pair_number[7:0] : read_addr[10] ? {6'd0, read_addr[3:2]} : 8'd4;

    wire [31:0] sum = sums[sum_cluster[3:0]*32 +: 32];
    reg [31:0] shown;
    wire [31:0] counter_unit = read_addr[11] ? pair + CLUSTERS : {28'd0, read_addr[9:6]};
    wire [31:0] counter_at = {counter_unit[28:0], read_addr[4:2]};

    assign counter_asked = counter_at[COUNTER_W-1:0];

    always @* begin
        case (read_addr)
            BISORT_REG_MAGIC[11:0]: shown = BISORT_MAGIC_VALUE;
            BISORT_REG_VERSION[11:0]: shown = BISORT_VERSION_VALUE;
            BISORT_REG_BUILD_HASH[11:0]: shown = BUILD_HASH[31:0];
            BISORT_REG_BUILD_HASH[11:0] + 12'd4: shown = BUILD_HASH[63:32];
            BISORT_REG_SHAPE[11:0]: shown = SHAPE;
            BISORT_REG_UNITS[11:0]: shown = UNITS;
            BISORT_REG_PORT[11:0]: shown = PORT;
            BISORT_REG_STATUS[11:0]:
                shown = {16'd0, queued, 4'd0, resetting, result_waits, !command_room, working};
            BISORT_REG_ERROR[11:0]: shown = {24'd0, error_reg};
            BISORT_REG_IRQ_ENABLE[11:0]: shown = {31'd0, irq_enable_reg};
            BISORT_REG_RESULT[11:0]: shown = {result_waits, 7'd0, number_reg, result[15:0]};
            BISORT_REG_RESULT_CYCLES[11:0]: shown = result[47:16];
            BISORT_REG_CYCLES[11:0]: shown = cycles_reg[31:0];
            BISORT_REG_CYCLES[11:0] + 12'd4: shown = cycles_reg[63:32];
            BISORT_REG_COMMANDS[11:0]: shown = commands_reg;
            BISORT_REG_INDEX_ROWS[11:0]: shown = index_rows;
            BISORT_REG_INDEX_CRC[11:0]: shown = sum;
            default: shown = 32'd0;
        endcase
        if (read_addr[11:8] == 4'd1 && {26'd0, param_at} < PARAMS && written_reg[param_at]) shown = copy_reg;
        if (read_addr[11:10] == 2'd1 && {28'd0, read_addr[9:6]} < CLUSTERS) begin
            if (!read_addr[5]) shown = counter;
            else if (read_addr[4:2] != 3'd7) shown = sum;
        end
        if (read_addr[11] && pair < PAIRS) begin
            if (!read_addr[5]) shown = counter;
            else if (!read_addr[4]) shown = sum;
        end
    end

    assign read_data = shown;

endmodule

/* verilator lint_on UNUSEDSIGNAL */

`default_nettype wire
