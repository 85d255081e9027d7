# frozen_string_literal: true

module Ringwell
  class Batch
    # Reads the most common answers without a JSON parser. In these answers, each row has its own
    # ten-digit number, no tracking URL, and exactly the format that servers write.
    #
    # Returns nil for any other answer. The parser then reads it, so an unusual format only costs
    # time. The parser took half of the time needed to read 40 rows
    # (docs/decisions/028-options-of-the-gem-are-keywords.md).
    module PlainAnswer
      OPENING = '{"responses":['
      CLOSING = "]}"
      ID = '"request_id":"'
      ROW = /\{(?:"request_id":"[A-Za-z0-9_ .:~-]*",)?"promo_number_formatted":"\d{3}-\d{3}-\d{4}",
        "promo_number":"[2-9]\d{9}","tracking_url":""\}/x
      FORM = /\A\{"responses":\[#{ROW}(?>,#{ROW})*\]\}\z/
      # Distances from the first byte of a row, and from the end of its id.
      ID_AT = 1 + ID.bytesize
      NUMBER_AFTER_ID = '","promo_number_formatted":"888-555-0142","promo_number":"'.bytesize
      NUMBER_WITHOUT_ID = '{"promo_number_formatted":"888-555-0142","promo_number":"'.bytesize
      NEXT_AFTER_NUMBER = '8885550142","tracking_url":""},'.bytesize
      # The third byte of a row that has no id.
      WITHOUT_ID = "p".ord
      private_constant(*constants)

      # @param body [String]
      # @param asked [Builder] the rows that were sent
      # @return [Array<Allocation>, nil] nil if the answer has another format or does not match
      #   these rows
      def self.read(body, asked)
        return unless body.ascii_only? && FORM.match?(body)

        at = OPENING.bytesize
        pools = asked.pools
        rows = []
        asked.ids.each do |id|
          if id
            from = at + ID_AT
            # An id may contain a quote, but an id in a common answer ends at the first quote.
            return nil unless id.is_a?(String) && body.byteslice(from, id.bytesize) == id &&
              body.index('"', from) == from + id.bytesize

            at = from + id.bytesize + NUMBER_AFTER_ID
          else
            return nil unless body.getbyte(at + 2) == WITHOUT_ID

            at += NUMBER_WITHOUT_ID
          end
          number = body.byteslice(at, 10)
          at += NEXT_AFTER_NUMBER
          rows << Allocation.allocate.fill_plain(pools[rows.size], number.freeze, id)
        end
        rows if at == body.bytesize - CLOSING.bytesize + 1
      end
    end
  end
end
