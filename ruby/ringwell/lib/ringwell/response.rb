# frozen_string_literal: true

module Ringwell
  # Reads one HTTP/1.1 answer from bytes that arrive in pieces, and reports whether its connection
  # can be reused. Does not depend on sockets or clocks.
  class Response
    # The API's answers are never longer: 500 rows with 8 KiB tracking URLs fit.
    HEAD_BYTES_MAX = 64 * 1024
    BODY_BYTES_MAX = 5 * 1024 * 1024

    # @return [Integer]
    attr_reader :status
    # @return [Hash{String => String}] names in lower case; if a name is repeated, its last value
    attr_reader :headers
    # @return [String] bytes, marked as UTF-8
    attr_reader :body

    # Reads one answer.
    #
    # @yieldparam buffer [String] the block appends bytes to it, and leaves it unchanged at the end
    #   of the stream
    # @raise [ProtocolError, ConnectionLost], and any error of the block
    def initialize(&more)
      @buffer = String.new(capacity: 16_384)
      @more = more
      read_head
      # Interim answers precede the final one.
      read_head while status.between?(100, 199)
      @body = read_body.force_encoding(Encoding::UTF_8)
      # Bytes beyond the answer may belong to any request.
      @reusable &&= @buffer.empty?
    end

    # Whether the connection can carry another request.
    def reusable? = @reusable

    private

    def read_head
      lines = take_head.split("\r\n")
      version, @status = lines.shift.to_s.match(%r{\AHTTP/1\.([01]) (\d{3})(?: |\z)})&.captures
      @status or raise ProtocolError, "the answer is not HTTP/1"
      @status = @status.to_i
      @headers = {}
      lines.each { |line| add_header(line) }
      connection = headers["connection"].to_s.downcase
      @reusable = version == "1" ? !connection.include?("close") : connection.include?("keep-alive")
    end

    def add_header(line)
      name, value = line.split(":", 2)
      value or raise ProtocolError, "a header of the answer has no colon"
      name = name.downcase
      value = value.strip
      # Two lengths make the answer ambiguous: a proxy may have used either.
      name == "content-length" && headers.fetch(name, value) != value and
        raise ProtocolError, "the answer has two lengths"
      headers[name] = value
    end

    def take_head
      until (ends = @buffer.index("\r\n\r\n"))
        @buffer.bytesize <= HEAD_BYTES_MAX or raise ProtocolError, "the answer's head is too long"
        grow
      end
      head = @buffer.slice!(0, ends + 4)
      head.chomp!("\r\n\r\n")
      head
    end

    def read_body
      length = headers["content-length"]
      if headers["transfer-encoding"].to_s.downcase.include?("chunked")
        length and raise ProtocolError, "the answer has a length and chunks"
        return read_chunks
      end
      length or return read_to_the_end
      length.match?(/\A\d{1,9}\z/) or raise ProtocolError, "content-length is not a number"
      take(length.to_i)
    end

    def read_chunks
      body = String.new
      loop do
        size = take_line[/\A\h{1,8}/] or raise ProtocolError, "a chunk of the answer has no size"
        size = size.hex
        break if size.zero?

        body << take(size)
        too_long(body.bytesize)
        take(2)
      end
      nil until take_line.empty?
      body
    end

    # If there is no length, the body ends when the connection ends.
    def read_to_the_end
      @reusable = false
      too_long(@buffer.bytesize) while add
      @buffer.slice!(0..)
    end

    def take(bytes)
      too_long(bytes)
      grow while @buffer.bytesize < bytes
      @buffer.slice!(0, bytes)
    end

    def take_line
      until (ends = @buffer.index("\r\n"))
        @buffer.bytesize <= HEAD_BYTES_MAX or raise ProtocolError, "a line is too long"
        grow
      end
      @buffer.slice!(0, ends + 2).chomp!("\r\n")
    end

    def too_long(bytes)
      bytes <= BODY_BYTES_MAX or raise ProtocolError, "the answer is too long"
    end

    def grow
      add or raise ConnectionLost, "the connection ended within the answer"
    end

    def add
      before = @buffer.bytesize
      @more.call(@buffer)
      @buffer.bytesize > before
    end
  end
end
