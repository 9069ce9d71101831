// Commands from a serial line: reads and writes registers (AXI4-Lite) and memory, and resets the engine.
//
// Everything is words of 32 bits, lowest byte first. A request: {count[15:0], number[7:0], operation[7:0]}, address, payload, CRC-32 of
// all that. An answer: {count, number, status}, payload, CRC-32. Nothing is done before a request has come whole and its CRC is right.
// Operations: 1 write registers (payload: offset and value in turn), 2 read registers (payload: offsets; answer: values), 3 write memory
// from `address` on, 4 read `count` words of memory (no payload), 5 reset the engine. Status: 0 done, 1 wrong CRC, 2 no such operation.
// A request that stops in the middle, or is longer than the buffer, is forgotten when the line has been still for a while.
// One request at a time: the host waits for the answer.

`default_nettype none

// Every AXI4-Lite answer of the engine is OKAY; addresses are used as far as there is memory.
/* verilator lint_off UNUSEDSIGNAL */

module uart_bridge #(
    // Clocks per bit of the line: 4 to 65535.
    parameter DIVISOR = 25,
    // Logarithm of the most words of a payload: 4 to 10.
    parameter WORDS_LOG2 = 8,
    // Logarithm of the clocks after which a line counts as still: 8 to 30.
    parameter STILL_LOG2 = 22,
    // Bits of a word's number in memory.
    parameter WORD_W = 16
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              rx,
    output wire              tx,

    // High for some cycles to reset the engine.
    output wire              engine_rst,

    output wire [11:0]       m_axil_awaddr,
    output wire              m_axil_awvalid,
    input  wire              m_axil_awready,
    output wire [31:0]       m_axil_wdata,
    output wire              m_axil_wvalid,
    input  wire              m_axil_wready,
    input  wire              m_axil_bvalid,
    output wire [11:0]       m_axil_araddr,
    output wire              m_axil_arvalid,
    input  wire              m_axil_arready,
    input  wire [31:0]       m_axil_rdata,
    input  wire              m_axil_rvalid,

    output wire              mem_valid,
    output wire              mem_write,
    output wire [WORD_W-1:0] mem_word,
    output wire [31:0]       mem_wdata,
    input  wire              mem_ready,
    input  wire [31:0]       mem_rdata
);

    localparam [7:0] WRITE_REGS = 8'd1, READ_REGS = 8'd2, WRITE_MEM = 8'd3, READ_MEM = 8'd4, RESET = 8'd5;
    localparam [7:0] DONE = 8'd0, WRONG_CRC = 8'd1, UNKNOWN = 8'd2;
    localparam [3:0]
        HEAD = 4'd0, ADDRESS = 4'd1, PAYLOAD = 4'd2, CHECK = 4'd3, STILL = 4'd4,
        NEXT = 4'd5, OFFSET = 4'd6, FETCH = 4'd7, WORK = 4'd8, RESTART = 4'd9,
        ANSWER = 4'd10, LOOK = 4'd11, SEND = 4'd12, SEAL = 4'd13;
    localparam [15:0] MOST = 16'd1 << WORDS_LOG2;

    param_check #(.OK(WORDS_LOG2 >= 4 && WORDS_LOG2 <= 10), .MESSAGE("WORDS_LOG2 must be 4 to 10")) words_check ();
    param_check #(.OK(STILL_LOG2 >= 8 && STILL_LOG2 <= 30), .MESSAGE("STILL_LOG2 must be 8 to 30")) still_check ();

    // ---- Bytes to words.

    wire [7:0] rx_data;
    wire rx_valid;
    reg [31:0] word_reg;
    reg [1:0] byte_reg;
    reg word_valid_reg;
    reg [STILL_LOG2-1:0] still_reg;

    uart_rx #(
        .DIVISOR(DIVISOR)
    ) receiver (
        .clk(clk),
        .rst(rst),
        .rx(rx),
        .data(rx_data),
        .valid(rx_valid)
    );

    // ---- Words to bytes.

    reg [31:0] out_reg;
    reg [2:0] out_left_reg;
    wire tx_ready;
    wire out_ready = out_left_reg == 3'd0;

    uart_tx #(
        .DIVISOR(DIVISOR)
    ) sender (
        .clk(clk),
        .rst(rst),
        .data(out_reg[7:0]),
        .valid(out_left_reg != 3'd0),
        .ready(tx_ready),
        .tx(tx)
    );

    // ---- The buffer: a payload that came, or that goes.

    reg [31:0] buffer [0:(1<<WORDS_LOG2)-1];
    reg [31:0] fetched_reg;
    reg [WORDS_LOG2:0] pos_reg;
    wire put;
    wire [31:0] put_data;

    always @(posedge clk) begin
        if (put) buffer[pos_reg[WORDS_LOG2-1:0]] <= put_data;
        fetched_reg <= buffer[pos_reg[WORDS_LOG2-1:0]];
    end

    // ---- Requests, work and answers.

    reg [3:0] state_reg;
    reg [7:0] op_reg, number_reg, status_reg;
    reg [15:0] count_reg, reply_reg;
    reg [31:0] address_reg;
    reg [11:0] offset_reg;
    reg aw_reg, w_reg, ar_reg, mem_reg;
    reg [3:0] restart_reg;
    wire [31:0] crc;

    wire has_payload = op_reg == WRITE_REGS || op_reg == READ_REGS || op_reg == WRITE_MEM;
    wire taking = state_reg == HEAD || state_reg == ADDRESS || state_reg == PAYLOAD;
    wire is_still = &still_reg;
    wire [15:0] pos = {{(15-WORDS_LOG2){1'b0}}, pos_reg};
    wire last = pos + 1'b1 == count_reg;
    wire [31:0] head = {reply_reg, number_reg, status_reg};
    wire told = (state_reg == ANSWER || state_reg == SEND) && out_ready;
    wire read_done = state_reg == WORK && op_reg == READ_REGS && m_axil_rvalid;
    wire mem_done = state_reg == WORK && (op_reg == WRITE_MEM || op_reg == READ_MEM) && mem_reg && mem_ready;
    wire write_done = state_reg == WORK && op_reg == WRITE_REGS && m_axil_bvalid;

    assign put = (state_reg == PAYLOAD && word_valid_reg) || read_done || (mem_done && op_reg == READ_MEM);
    assign put_data = state_reg == PAYLOAD ? word_reg : op_reg == READ_REGS ? m_axil_rdata : mem_rdata;

    crc32_unit #(
        .ELEM_W(32),
        .LANES(1)
    ) crc32 (
        .clk(clk),
        .rst(rst),
        .data(taking ? word_reg : state_reg == ANSWER ? head : fetched_reg),
        .keep(1'b1),
        .valid((taking && word_valid_reg) || told),
        .first(state_reg == HEAD || state_reg == ANSWER),
        .crc(crc)
    );

    always @(posedge clk) begin
        word_valid_reg <= rx_valid && byte_reg == 2'd3;
        still_reg <= still_reg + !is_still;
        if (rx_valid) begin
            word_reg <= {rx_data, word_reg[31:8]};
            byte_reg <= byte_reg + 1'b1;
            still_reg <= 0;
        end
        if (out_left_reg != 3'd0 && tx_ready) begin
            out_reg <= {8'd0, out_reg[31:8]};
            out_left_reg <= out_left_reg - 1'b1;
        end

        case (state_reg)
            HEAD: if (word_valid_reg) begin
                op_reg <= word_reg[7:0];
                number_reg <= word_reg[15:8];
                count_reg <= word_reg[31:16];
                state_reg <= ADDRESS;
            end
            ADDRESS: if (word_valid_reg) begin
                address_reg <= word_reg;
                pos_reg <= 0;
                if (count_reg > MOST) state_reg <= STILL;
                else state_reg <= has_payload && count_reg != 16'd0 ? PAYLOAD : CHECK;
            end
            PAYLOAD: if (word_valid_reg) begin
                pos_reg <= pos_reg + 1'b1;
                if (last) state_reg <= CHECK;
            end
            CHECK: if (word_valid_reg) begin
                pos_reg <= 0;
                status_reg <= word_reg != crc ? WRONG_CRC : op_reg == 8'd0 || op_reg > RESET ? UNKNOWN : DONE;
                reply_reg <= 16'd0;
                state_reg <= ANSWER;
                if (word_reg == crc && op_reg == RESET) begin
                    restart_reg <= 4'd15;
                    state_reg <= RESTART;
                end else if (word_reg == crc && op_reg != 8'd0 && op_reg <= READ_MEM && count_reg != 16'd0) begin
                    reply_reg <= op_reg == READ_REGS || op_reg == READ_MEM ? count_reg : 16'd0;
                    state_reg <= NEXT;
                end
            end
            // Forgets what came until the line is still.
            STILL: if (is_still) state_reg <= HEAD;
            RESTART: begin
                restart_reg <= restart_reg - 1'b1;
                if (restart_reg == 4'd0) state_reg <= ANSWER;
            end

            // The buffer shows the word at `pos` one cycle after `pos` has changed.
            NEXT: state_reg <= op_reg == WRITE_REGS ? OFFSET : FETCH;
            OFFSET: begin
                offset_reg <= fetched_reg[11:0];
                pos_reg <= pos_reg + 1'b1;
                // A value without an offset before it is not there: the pair is the last one.
                state_reg <= last ? ANSWER : FETCH;
                if (last) pos_reg <= 0;
            end
            FETCH: begin
                aw_reg <= op_reg == WRITE_REGS;
                w_reg <= op_reg == WRITE_REGS;
                ar_reg <= op_reg == READ_REGS;
                mem_reg <= op_reg == WRITE_MEM || op_reg == READ_MEM;
                state_reg <= WORK;
            end
            WORK: begin
                if (m_axil_awready) aw_reg <= 1'b0;
                if (m_axil_wready) w_reg <= 1'b0;
                if (m_axil_arready) ar_reg <= 1'b0;
                if (write_done || read_done || mem_done) begin
                    mem_reg <= 1'b0;
                    address_reg <= address_reg + 32'd4;
                    pos_reg <= last ? 0 : pos_reg + 1'b1;
                    state_reg <= last ? ANSWER : NEXT;
                end
            end

            ANSWER: if (out_ready) begin
                out_reg <= head;
                out_left_reg <= 3'd4;
                state_reg <= reply_reg == 16'd0 ? SEAL : LOOK;
            end
            LOOK: state_reg <= SEND;
            SEND: if (out_ready) begin
                out_reg <= fetched_reg;
                out_left_reg <= 3'd4;
                pos_reg <= pos_reg + 1'b1;
                state_reg <= pos + 1'b1 == reply_reg ? SEAL : LOOK;
            end
            SEAL: if (out_ready) begin
                out_reg <= crc;
                out_left_reg <= 3'd4;
                state_reg <= HEAD;
            end
            default: state_reg <= STILL;
        endcase

        // A request that stopped in the middle: whatever comes after the pause begins a new one.
        if (is_still && !rx_valid && (taking || state_reg == CHECK)) begin
            state_reg <= HEAD;
            byte_reg <= 2'd0;
            word_valid_reg <= 1'b0;
        end
        if (state_reg == STILL) byte_reg <= 2'd0;
        if (rst) begin
            state_reg <= HEAD;
            byte_reg <= 2'd0;
            word_valid_reg <= 1'b0;
            still_reg <= 0;
            out_left_reg <= 3'd0;
            aw_reg <= 1'b0;
            w_reg <= 1'b0;
            ar_reg <= 1'b0;
            mem_reg <= 1'b0;
        end
    end

    assign engine_rst = state_reg == RESTART;
    assign m_axil_awaddr = offset_reg;
    assign m_axil_awvalid = aw_reg;
    assign m_axil_wdata = fetched_reg;
    assign m_axil_wvalid = w_reg;
    assign m_axil_araddr = fetched_reg[11:0];
    assign m_axil_arvalid = ar_reg;
    assign mem_valid = mem_reg;
    assign mem_write = op_reg == WRITE_MEM;
    assign mem_word = address_reg[WORD_W+1:2];
    assign mem_wdata = fetched_reg;

endmodule

/* verilator lint_on UNUSEDSIGNAL */

`default_nettype wire
