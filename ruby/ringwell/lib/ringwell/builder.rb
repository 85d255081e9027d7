# frozen_string_literal: true

module Ringwell
  class Batch
    # Collects the rows in the block of {Allocator#bulk}. Each row is checked and written as JSON
    # when it is added.
    #
    # Stores one array for each field, and the JSON in pieces. Creating an object and a string for
    # each row took half of the time needed to build a batch
    # (docs/decisions/028-options-of-the-gem-are-keywords.md).
    class Builder
      # Text that needs no escaping in JSON.
      PLAIN = /\A[A-Za-z0-9_ .:~-]*\z/
      private_constant :PLAIN

      # Creates a builder with existing rows.
      #
      # @param requests [Array<Request>]
      # @return [Builder]
      def self.of(requests)
        new(Rows.new).send(:take, requests.map(&:pool), requests.map(&:request_id),
          requests.each_with_index.to_h { |row, index| [index, row.overflow] }.compact,
          requests.map { |row| "#{row.json}," }, Array.new(requests.size, &:itself))
      end

      # @param rows [Rows] the cached row parts of the source of numbers
      def initialize(rows)
        @rows = rows
        @heads = rows.heads
        @names = rows.names
        take([], [], {}, [], [])
      end

      # @return [Array<String>] each row's pool
      attr_reader :pools
      # @return [Array<String, Numeric, Boolean, nil>] each row's request_id
      attr_reader :ids
      # @return [Hash{Integer => String}] the given overflow numbers, by row
      attr_reader :overflow

      # Adds a row; see {Allocator#allocate}. If the row is refused, the batch stays unchanged.
      #
      # @param pool [String, Integer]
      # @param key [String, nil]
      # @param params [Hash, nil]
      # @param request_id [String, Numeric, Boolean, nil]
      # @param overflow [String, nil]
      # @param visitor [String, nil]
      # @return [self]
      # @raise [ArgumentError] names the part that cannot be sent
      def allocate(pool, key: nil, params: nil, request_id: nil, overflow: nil, visitor: nil)
        pool = pool.to_s unless pool.is_a?(String)
        key ||= @rows.keys[pool]
        head = @heads[pool]
        head = @rows.head(pool, key) unless head && head[1] == key
        pieces = @pieces
        start = pieces.size
        pieces << head[2]
        add_params(params) if params
        pieces << Request::VISITOR << CGI.escape(checked_visitor(visitor)) if visitor
        if request_id.is_a?(String) && request_id.valid_encoding? && PLAIN.match?(request_id)
          request_id = request_id.dup.freeze unless request_id.frozen?
          pieces << '","request_id":"' << request_id << '"},'
        else
          pieces << end_with_id(request_id)
          request_id = Value.copy(request_id)
        end
        @overflow[@ids.size] = checked_overflow(overflow) if overflow
        @starts << start
        @pools << head[0]
        @ids << request_id
        self
      rescue
        pieces&.slice!(start..)
        raise
      end

      # @return [Integer] the number of rows
      def size = @ids.size

      # @return [String] a row in the API's format
      def row(index) = @pieces[@starts[index]...@starts[index + 1]].join.chop

      # @return [String] the body of the batch
      def body
        body = @pieces.join
        body.chop!
        body.prepend('{"requests":[') << "]}"
      end

      # The bodies of the batch, each within the server's limit.
      #
      # @return [Array<(Builder, String)>]
      def parts
        most = Request::ROWS_MAX
        return 0.step(size - 1, most).flat_map { |from| slice(from, most).parts } if size > most

        body = self.body
        return [[self, body]] if body.bytesize <= Request::BODY_BYTES_MAX || size == 1

        half = size / 2
        slice(0, half).parts + slice(half, size - half).parts
      end

      protected

      def take(pools, ids, overflow, pieces, starts)
        @pools = pools
        @ids = ids
        @overflow = overflow
        @pieces = pieces
        @starts = starts
        self
      end

      private

      def slice(from, rows)
        first = @starts[from]
        starts = @starts[from, rows].map { |start| start - first }
        overflow = @overflow.transform_keys { |row| row - from }.select { |row, _| row.between?(0, rows - 1) }
        pieces = @pieces[first...@starts[from + rows]]
        Builder.new(@rows).take(@pools[from, rows], @ids[from, rows], overflow, pieces, starts)
      end

      # nil is sent as an empty value. Bytes that are not UTF-8 are escaped like all others, because
      # the server stores the bytes as sent.
      def add_params(params)
        params.is_a?(Hash) or raise ArgumentError, "params must be a hash, got #{params.class}"
        pieces = @pieces
        names = @names
        params.each do |name, value|
          value = scalar(name, value) unless value.is_a?(String)
          pieces << (names[name] || @rows.name(name)) << CGI.escape(value)
        end
      end

      # Values that are not scalars are refused, because "[1, 2]" in a report is never intended.
      def scalar(name, value)
        case value
        when Symbol, Numeric, nil, true, false then value.to_s
        else raise ArgumentError, "parameter #{name} must be a scalar, got #{value.class}"
        end
      end

      def checked_visitor(visitor)
        visitor.is_a?(String) or raise ArgumentError, "visitor must be text, got #{visitor.class}"
        visitor
      end

      def checked_overflow(number)
        Request::NUMBER.match?(number) or
          raise ArgumentError, "overflow must be ten digits, or + and a country code, got #{number.inspect}"
        Value.copy(number)
      end

      # The API echoes any JSON scalar. It also accepts null, but nil is not sent.
      def end_with_id(id)
        valid = case id
        when nil then return '"},'
        when String then id.valid_encoding?
        when Float then id.finite?
        else id.is_a?(Integer) || id == true || id == false
        end
        valid or raise ArgumentError, "request_id must be a JSON scalar, got #{id.inspect}"
        "\",\"request_id\":#{JSON.generate(id)}},"
      end
    end
  end
end
