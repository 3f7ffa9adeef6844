import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Copies a topic in transactions of five records, each twice: aborted first, then committed. */
public class Transact {
    public static void main(String[] words) throws Exception {
        String bootstrap = words[0], source = words[1], target = words[2];
        int count = Integer.parseInt(words[3]);
        Properties reading = new Properties();
        reading.put("bootstrap.servers", bootstrap);
        reading.put("group.id", "copy-" + target);
        reading.put("auto.offset.reset", "earliest");
        reading.put("enable.auto.commit", "false");
        reading.put("isolation.level", "read_committed");
        reading.put("max.poll.records", "5");
        Properties writing = new Properties();
        writing.put("bootstrap.servers", bootstrap);
        writing.put("transactional.id", "copy-" + target);
        try (KafkaConsumer<String, String> consumer =
                    new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
                KafkaProducer<String, String> producer =
                    new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            int copied = 0;
            while (copied < count) {
                Map<TopicPartition, OffsetAndMetadata> read = new HashMap<>();
                var records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                for (boolean commits : new boolean[] {false, true}) {
                    producer.beginTransaction();
                    for (ConsumerRecord<String, String> each : records) {
                        String value = commits ? each.value() : "aborted";
                        producer.send(new ProducerRecord<>(target, each.key(), value));
                        read.put(new TopicPartition(each.topic(), each.partition()),
                            new OffsetAndMetadata(each.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(read, consumer.groupMetadata());
                    if (commits) {
                        producer.commitTransaction();
                    } else {
                        producer.abortTransaction();
                    }
                }
                copied += records.count();
            }
        }
        Properties checking = new Properties();
        checking.putAll(reading);
        checking.put("group.id", "check-" + target);
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(checking, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(target));
            int seen = 0;
            while (seen < count) {
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println(each.value());
                    seen++;
                }
            }
        }
    }
}
