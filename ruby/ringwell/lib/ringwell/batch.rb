# frozen_string_literal: true

module Ringwell
  # The outcomes of a batch, in the order of its requests. Each is an {Allocation} or a {RowError};
  # if no answer arrived and the pool's overflow number is unknown, it is the batch's error.
  class Batch
    include Enumerable

    # @return [Array<Allocation, RowError, Error>] frozen
    attr_reader :outcomes

    def initialize(outcomes)
      @outcomes = outcomes.dup.freeze
      freeze
    end

    def each(&block) = block ? outcomes.each(&block) && self : outcomes.each

    def [](index) = outcomes[index]

    def size = outcomes.size

    # @return [Array<Allocation>] the rows that have a number
    def allocations = grep(Allocation)

    # @return [Array<Error>] the outcomes of the other rows
    def errors = grep(Error)

    # @return [Array<Allocation>] the rows that have an overflow number
    def overflowed = allocations.select(&:overflow?)

    def ==(other) = other.class == self.class && other.outcomes == outcomes
    alias eql? ==

    def hash = outcomes.hash

    # The answer in the API's format. Rows without an answer look like rows that the server could
    # not answer in time.
    def as_json(*)
      rows = outcomes.map do |outcome|
        case outcome
        when Allocation, RowError then outcome.as_json
        else {"error_class" => "ServiceUnavailable", "message" => outcome.message}
        end
      end
      {"responses" => rows}
    end

    def to_json(*args) = as_json.to_json(*args)

    # Reads an answer's body.
    #
    # @param body [String]
    # @param asked [Builder] the rows that were sent
    # @yieldparam index [Integer] called for each row without its own number
    # @yieldparam outcome [Allocation, RowError]
    # @yieldreturn [Allocation, RowError] the row's outcome
    # @return [Array<Allocation, RowError>]
    # @raise [ProtocolError] if it is not an answer to the rows
    def self.read(body, asked, &)
      PlainAnswer.read(body, asked) || parse(body, asked, &)
    end

    # Reads any answer, see {.read}.
    def self.parse(body, asked)
      rows = JSON.parse(body).fetch("responses")
      rows.size == asked.size or
        raise ProtocolError, "#{asked.size} rows were sent, #{rows.size} answered"
      pools = asked.pools
      ids = asked.ids
      index = -1
      rows.map do |row|
        id = ids[index += 1]
        # An error is better than another visitor's number.
        id == row["request_id"] || no_id?(row) or raise ProtocolError, "the answer belongs to another request"
        number = row["promo_number"] or next yield(index, error(row))
        overflow = row["overflow"]
        allocation = Allocation.allocate.fill(pools[index], number.freeze, overflow ? :overflow : :allocated, id,
          row["tracking_url"].freeze, row["promo_number_formatted"])
        overflow ? yield(index, allocation) : allocation
      end
    rescue JSON::ParserError, KeyError, TypeError, NoMethodError, ArgumentError => error
      raise ProtocolError, "the answer is not a batch answer: #{error.message}"
    end

    # A server omits an id that it does not accept.
    def self.no_id?(row) = !row.key?("request_id")

    def self.error(row)
      RowError.new(error_class: row.fetch("error_class"), message: row["message"].to_s, request_id: row["request_id"])
    end
    private_class_method :parse, :no_id?, :error
  end
end
